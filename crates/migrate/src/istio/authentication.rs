//! `RequestAuthentication`: which tokens are accepted.

use serde_json::Value as Json;
use toml::Value;

use super::{KnownIssuer, Output, named, no_equal, text, texts};
use crate::SecretFile;
use crate::report::Translation;

/// Names of the files for key sets that are written in the objects.
const KEY_SETS: [&str; 4] =
    ["issuer-1.jwks.json", "issuer-2.jwks.json", "issuer-3.jwks.json", "issuer-4.jwks.json"];

pub(super) fn translate(objects: &[&Json], output: &mut Output) -> Vec<KnownIssuer> {
    let mut issuers: Vec<KnownIssuer> = Vec::new();
    let mut fields = toml::Table::new();
    for object in objects {
        for rule in object["spec"]["jwtRules"].as_array().into_iter().flatten() {
            let issuer = text(&rule["issuer"]).to_owned();
            let setting = named(object, &format!("jwtRule {issuer}"));
            if issuers.iter().any(|known| known.issuer == issuer) {
                no_equal(
                    &mut output.report,
                    setting,
                    "the issuer is there already: write both lists of `audiences` into one entry",
                );
                continue;
            }
            let name = format!("issuer-{}", issuers.len() + 1);
            add(rule, &name, &setting, output);
            claims(rule, &setting, &mut fields, output);
            let forwards = rule["forwardOriginalToken"] == true;
            issuers.push(KnownIssuer { name, issuer, forwards });
        }
    }
    let table = output.draft.table("[identity_headers]");
    table.set("style", "none", "");
    if !fields.is_empty() {
        table.set("fields", Value::Table(fields), "outputClaimToHeaders");
    }
    issuers
}

fn add(rule: &Json, name: &str, setting: &str, output: &mut Output) {
    let table = output.draft.table("[[issuer]]");
    table.set("name", name, "").set("issuer", text(&rule["issuer"]), setting);
    let audiences = texts(&rule["audiences"]);
    if audiences.is_empty() {
        table.set("audiences", vec!["WRITE-THE-AUDIENCE"], "Istio accepts any audience without `audiences`");
        no_equal(
            &mut output.report,
            format!("{setting}, no audiences"),
            "write the audience of this service into `audiences`",
        );
    } else {
        table.set("audiences", audiences, "audiences");
    }
    // Istio does not look at the type of a token.
    table.set("id_tokens", true, "Istio accepts every JWT of the issuer").set("token_types", "untyped", "");
    let (uri, inline) = (text(&rule["jwksUri"]), text(&rule["jwks"]));
    if !uri.is_empty() {
        table.set("jwks_uri", uri, "jwksUri");
    } else if !inline.is_empty() {
        let number = output.files.len();
        match KEY_SETS.get(number) {
            Some(file) => {
                table.set("jwks_file", *file, "jwks");
                output.files.push(SecretFile { name: file, content: Some(inline.to_owned()) });
            }
            None => no_equal(
                &mut output.report,
                format!("jwks of {setting}"),
                "write it into a file, and name that with `jwks_file`",
            ),
        }
    }
    output.report.add(
        setting,
        Translation::Different(
            "ID tokens are accepted too, as by Istio: without `id_tokens`, only access tokens are".into(),
        ),
    );
    for (key, remedy) in [
        (
            "fromHeaders",
            "a token is read from `Authorization`, or from the protocols of a WebSocket (`websocket_bearer`)",
        ),
        ("fromParams", "a token in the address is refused: it ends in logs"),
        ("fromCookies", "a token in a cookie is no credential; a login has sessions of its own"),
        (
            "outputPayloadToHeader",
            "send the claims that are needed with `identity_headers.fields`, or a signed `[assertion]`",
        ),
        ("timeout", "keys are fetched in the background, with a limit of 5 s"),
    ] {
        if !rule[key].is_null() {
            no_equal(&mut output.report, format!("{key} of {setting}"), remedy);
        }
    }
}

/// Claims that the workload gets.
fn claims(rule: &Json, setting: &str, fields: &mut toml::Table, output: &mut Output) {
    for pair in rule["outputClaimToHeaders"].as_array().into_iter().flatten() {
        let (header, claim) = (text(&pair["header"]), text(&pair["claim"]));
        fields.insert(header.to_owned(), format!("claims.{claim}").into());
        output.report.add(format!("outputClaimToHeaders {header} of {setting}"), Translation::Translated);
    }
}
