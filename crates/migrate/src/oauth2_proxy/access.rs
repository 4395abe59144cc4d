//! Who may pass: addresses, groups, tokens, passwords.

use toml::Value;

use super::provider::{self, NAME, Provider};
use crate::draft::{Draft, inline};
use crate::files::ContainerFiles;
use crate::input_fault::InputFault;
use crate::settings::{Given, ProgramSettings};

/// What each route needs.
pub(super) struct Access {
    /// Its rules.
    pub(super) policy: Value,
    /// From what they came.
    pub(super) from: String,
    /// The flag of the file with passwords.
    pub(super) basic_auth: Option<String>,
    /// The path of the login; `None`: its default.
    pub(super) login_path: Option<String>,
}

pub(super) fn translate(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    files: &ContainerFiles,
    provider: &Provider,
) -> Result<Access, InputFault> {
    let mut from = Vec::new();
    let groups = groups(settings, &mut from);
    let people = people(settings, files, &mut from)?;
    let (basic_auth, has_group) = passwords(settings, draft, groups.as_ref());
    let mut rules: Vec<Value> = people
        .into_iter()
        .map(|condition| {
            let groups = groups.clone().map(|groups| ("groups", groups));
            inline([condition].into_iter().chain(groups))
        })
        .collect();
    if basic_auth.is_some() {
        let groups = groups.clone().filter(|_| !has_group).map(|groups| ("groups", groups));
        rules.push(inline([("issuers", vec!["passwords"].into())].into_iter().chain(groups)));
    }
    tokens(settings, draft, provider)?;
    if token_reviews(settings, draft)? {
        rules.push(inline(
            [("issuers", vec!["cluster"].into())].into_iter().chain(groups.map(|groups| ("groups", groups))),
        ));
    }
    settings.none_equal(
        &["trusted-ip"],
        "an address is no credential: a route for such callers can be `public` behind a network policy, or have a rule \
         with `addresses` beside a credential",
    );
    Ok(Access {
        policy: inline([("allow", Value::Array(rules))]),
        from: from.join(", "),
        basic_auth,
        login_path: provider.login_path.clone(),
    })
}

/// Flags that say who may, and whose answer no claim has.
const NARROWING: [&str; 10] = [
    "google-group",
    "gitlab-project",
    "github-org",
    "github-team",
    "github-repo",
    "github-user",
    "bitbucket-team",
    "bitbucket-workspace",
    "bitbucket-repository",
    "entra-id-allowed-tenant",
];

/// The groups of which a person needs one.
fn groups(settings: &mut ProgramSettings, from: &mut Vec<String>) -> Option<Value> {
    let mut groups = Vec::new();
    for flag in ["allowed-group", "keycloak-group", "gitlab-group"] {
        let given = settings.list(flag);
        if let Some(first) = given.first() {
            from.push(first.origin.clone());
        }
        for given in given {
            settings.translated(&given);
            groups.push(given.value);
        }
    }
    for given in settings.list("allowed-role") {
        settings.no_equal(
            &given,
            "a role is no group: write a rule with `claims = { \"realm_access.roles\" = [\"NAME\"] }` in place of the group \
             `role:…`, which nobody has",
        );
        groups.push(format!("role:{}", given.value));
        from.push(given.origin);
    }
    // What these flags ask for is not asked here.
    let is_narrowed = NARROWING.iter().any(|flag| settings.has(flag));
    if is_narrowed {
        groups = vec!["nobody".to_owned()];
        from.push("see the report".to_owned());
    }
    settings.none_equal(
        &[
            "google-group",
            "google-admin-email",
            "google-service-account-json",
            "google-use-application-default-credentials",
            "google-target-principal",
            "google-admin-api-user-scope",
            "google-use-organization-id",
            "gitlab-project",
            "github-org",
            "github-team",
            "github-repo",
            "github-token",
            "github-user",
            "bitbucket-team",
            "bitbucket-workspace",
            "bitbucket-repository",
            "azure-graph-group-field",
        ],
        "groups come from claims of the provider; let Keycloak or Dex ask for them, and write rules with `groups` in place of \
         `nobody`",
    );
    settings.none_equal(
        &["entra-id-allowed-tenant"],
        "a login has one tenant: add a [[login.provider]] for each, and write it in place of the group `nobody`",
    );
    settings.none_equal(
        &["entra-id-federated-token-auth"],
        "the client authenticates with a secret, a key or a certificate",
    );
    (!groups.is_empty()).then(|| groups.into())
}

/// The conditions, one of which a person must meet.
fn people(
    settings: &mut ProgramSettings,
    files: &ContainerFiles,
    from: &mut Vec<String>,
) -> Result<Vec<(&'static str, Value)>, InputFault> {
    let mut conditions = Vec::new();
    let mut domains = Vec::new();
    for given in settings.list("email-domain") {
        from.push(given.origin.clone());
        match &*given.value {
            "*" => conditions.push(("issuers", Value::from(vec![NAME]))),
            domain if domain.starts_with('.') || domain.contains('*') => {
                settings.no_equal(&given, "a domain has no wildcard: list the domains in `email_domains`");
                continue;
            }
            domain => domains.push(domain.to_owned()),
        }
        settings.translated(&given);
    }
    if !domains.is_empty() {
        conditions.push(("email_domains", domains.into()));
    }
    if let Some(given) = settings.text("authenticated-emails-file") {
        let text = files.text(&given)?;
        let lines = text.lines().map(|line| line.split(',').next().unwrap_or_default().trim());
        let emails: Vec<String> =
            lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect();
        if !emails.is_empty() {
            conditions.push(("emails", emails.into()));
        }
        settings
            .different(&given, "the addresses are in the configuration; a change of the file has no effect");
        from.push(given.origin);
    }
    if conditions.is_empty() && !settings.has("htpasswd-file") {
        let why = "none of --email-domain, --authenticated-emails-file and --htpasswd-file admits anybody";
        return Err(InputFault::Contradiction(why.into()));
    }
    Ok(conditions)
}

/// Passwords of a file. Returns from what they came, and whether all of its users have one of the
/// groups that a caller needs.
fn passwords(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    needed: Option<&Value>,
) -> (Option<String>, bool) {
    let own = settings.list("htpasswd-user-group");
    let is_needed = |given: &Given| {
        let needed = needed.and_then(Value::as_array).into_iter().flatten();
        needed.filter_map(Value::as_str).any(|group| group == given.value)
    };
    let has_group = own.iter().any(is_needed);
    for given in &own {
        settings.different(
            given,
            "rules let the users of the file pass as members; the service is not told the group: write it into `[basic_auth] groups`",
        );
    }
    let Some(given) = settings.text("htpasswd-file") else { return (None, has_group) };
    draft.table("[basic_auth]").set("name", "passwords", "").set("file", &*given.value, &given.shown());
    settings.different(
        &given,
        "bcrypt and Argon2 only: SHA-1 is refused, write such users anew with `htpasswd -B`",
    );
    (Some(given.shown()), has_group)
}

/// Tokens that programs send.
fn tokens(settings: &mut ProgramSettings, draft: &mut Draft, provider: &Provider) -> Result<(), InputFault> {
    let others = settings.list("extra-jwt-issuers");
    let audience_claims = settings.list("oidc-audience-claim");
    let extra = settings.list("oidc-extra-audience");
    let Some(given) = settings.switch("skip-jwt-bearer-tokens")? else {
        for given in others.iter().chain(&audience_claims).chain(&extra) {
            settings.different(
                given,
                "without --skip-jwt-bearer-tokens no token is a credential, so nothing is lost",
            );
        }
        return Ok(());
    };
    if provider.is_openshift {
        let table = draft.table("[[token_authority]]");
        table.set("name", NAME, "").set("kind", "openshift-user", &given.shown()).set(
            "url",
            &*provider.issuer,
            "",
        );
        table.set_some("ca", provider.ca.as_deref(), "--provider-ca-file").set(
            "prefixes",
            vec!["sha256~"],
            "",
        );
        settings.translated(&given);
        for given in others.iter().chain(&audience_claims).chain(&extra) {
            settings
                .different(given, "OpenShift's tokens are opaque, as for the program, so nothing is lost");
        }
        return Ok(());
    }
    let mut audiences = vec![provider.client_id.clone()];
    audiences.extend(extra.iter().map(|given| given.value.clone()));
    let table = draft.table("[[issuer]]");
    table.set("name", NAME, "").set("issuer", &*provider.issuer, &given.shown());
    table.set("audiences", audiences, "--client-id, --oidc-extra-audience");
    table.set("id_tokens", true, &given.shown()).set("token_types", "untyped", &given.shown());
    table.set_some("ca", provider.ca.as_deref(), "--provider-ca-file");
    if !provider.algorithms.is_empty() {
        table.set("algorithms", provider.algorithms.clone(), "--oidc-enabled-signing-alg");
    }
    for claim in &audience_claims {
        if claim.value == "aud" {
            settings.translated(claim);
        } else {
            table.set("audience_claim", &*claim.value, &claim.shown());
            settings.different(claim, "one claim has the audience: the last one of the list");
        }
    }
    provider::set_claims(draft.table("[issuer.claims]"), provider);
    for given in [&given].into_iter().chain(&extra) {
        settings.translated(given);
    }
    for (at, given) in others.iter().enumerate() {
        other_issuer(settings, draft, at, given)?;
    }
    Ok(())
}

/// `TokenReview` of the fork. Returns whether it is on.
fn token_reviews(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<bool, InputFault> {
    const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let audiences = settings.list("kubernetes-audiences");
    let Some(given) = settings.switch("enable-k8s-token-validation")? else {
        for given in &audiences {
            settings.different(
                given,
                "without --enable-k8s-token-validation it has no effect, so nothing is lost",
            );
        }
        return Ok(false);
    };
    let table = draft.table("[[token_authority]]");
    table.set("name", "cluster", "").set("kind", "token-review", &given.shown());
    table.set("url", "https://kubernetes.default.svc", "").set("ca", format!("{SERVICE_ACCOUNT}/ca.crt"), "");
    table.set("token_file", format!("{SERVICE_ACCOUNT}/token"), "");
    let issuer = "the issuer of the cluster: kubectl get --raw /.well-known/openid-configuration";
    table.set("issuers", vec!["https://kubernetes.default.svc.cluster.local"], issuer);
    if audiences.is_empty() {
        table.set("any_audience", true, "no --kubernetes-audiences");
    } else {
        let values: Vec<String> = audiences.iter().map(|given| given.value.clone()).collect();
        table.set("audiences", values, "--kubernetes-audiences");
    }
    for given in &audiences {
        settings.translated(given);
    }
    settings.different(&given, "an answer is cached for 10 s (`ttl`); rules name the source `cluster`");
    Ok(true)
}

/// An issuer of further tokens, `ISSUER=AUDIENCE`.
fn other_issuer(
    settings: &mut ProgramSettings,
    draft: &mut Draft,
    at: usize,
    given: &Given,
) -> Result<(), InputFault> {
    let Some((issuer, audience)) = given.value.rsplit_once('=') else {
        return Err(given.fault("an issuer and an audience, ISSUER=AUDIENCE"));
    };
    let table = draft.table("[[issuer]]");
    table.set("name", format!("issuer-{}", at + 1), "").set("issuer", issuer, &given.shown());
    table.set("audiences", vec![audience], "").set("id_tokens", true, "").set("token_types", "untyped", "");
    settings.different(given, "rules name issuers: add it to those that its tokens may pass");
    Ok(())
}
