//! Untrusted input of the provider, and password hashes from elsewhere: nothing panics, and
//! accepted input has one meaning.
//!
//! The first byte selects what follows:
//!
//! - `f`: a form.
//! - `a`: the query of an authorization request.
//! - `r`: a redirect URI that a client requests.
//! - `s`: scopes.
//! - `u`: a user code as it was typed.
//! - `p`: a stored password hash.
//!
//! Checked:
//!
//! - A form that is written again reads the same.
//! - A response goes to a registered address, and a browser reads that address as it was meant.
//! - Scopes are among those of the client.
//! - Codes and hashes have one spelling.
#![no_main]

use std::sync::LazyLock;

use idp::authorization::request::{ClientRights, Refusal, read};
use idp::device::read_user_code;
use idp::oauth::form::Form;
use idp::oauth::redirect_uri::RedirectUri;
use idp::oauth::scope::ScopeSet;
use idp::passwords::Phc;
use libfuzzer_sys::fuzz_target;
use url::Url;

static REGISTERED: LazyLock<Vec<RedirectUri>> = LazyLock::new(|| {
    ["https://app.example/cb", "http://127.0.0.1/cb?from=login", "http://[::1]:8080", "com.example.app:/cb"]
        .map(|uri| RedirectUri::parse(uri).expect("a sound URI"))
        .into()
});

static SCOPES: LazyLock<ScopeSet> =
    LazyLock::new(|| ScopeSet::parse("openid profile offline_access read").expect("sound scopes"));

static DEFAULT_SCOPES: LazyLock<ScopeSet> =
    LazyLock::new(|| ScopeSet::parse("profile read").expect("sound scopes"));

fuzz_target!(|input: &str| {
    let Some(kind) = input.bytes().next().filter(u8::is_ascii) else { return };
    let text = &input[1..];
    match kind {
        b'f' => form(text),
        b'a' => authorization(text),
        b'r' => _ = leads_where_it_is_registered(text),
        b's' => scopes(text),
        b'u' => {
            if let Some(code) = read_user_code(text) {
                assert_eq!(read_user_code(&code).as_ref(), Some(&code), "{text:?}");
            }
        }
        b'p' => {
            if let Ok(phc) = Phc::parse(text) {
                assert_eq!(phc.encode(), text);
            }
        }
        _ => {}
    }
});

fn form(text: &str) {
    if let Ok(form) = Form::parse(text.as_bytes()) {
        let again = Form::parse(form.to_query().as_bytes());
        assert!(again.is_ok_and(|again| again == form), "{text:?}");
    }
}

fn authorization(text: &str) {
    let Ok(form) = Form::parse(text.as_bytes()) else { return };
    for needs_challenge in [false, true] {
        let rights = ClientRights {
            redirect_uris: &REGISTERED,
            scopes: &SCOPES,
            default_scopes: &DEFAULT_SCOPES,
            needs_challenge,
        };
        match read(&form, rights) {
            Ok(request) => {
                assert!(leads_where_it_is_registered(request.address.redirect_uri()), "{text:?}");
                assert_eq!(request.scopes.first_outside(&SCOPES), None, "{text:?}");
                assert_eq!(request.consent_scopes.first_outside(&SCOPES), None, "{text:?}");
                assert!(request.challenge.is_some() || !needs_challenge, "{text:?}");
            }
            Err(Refusal::Answer(address, _)) => {
                assert!(leads_where_it_is_registered(address.redirect_uri()), "{text:?}");
            }
            Err(Refusal::Page(_)) => {}
        }
    }
}

/// Whether one of the registered addresses admits this one. If so, verifies that a browser reads
/// the same address from both.
fn leads_where_it_is_registered(asked: &str) -> bool {
    let Some(registered) = REGISTERED.iter().find(|uri| uri.matches(asked)) else { return false };
    let (ours, theirs) = (Url::parse(registered.as_str()), Url::parse(asked));
    let (ours, theirs) = (ours.expect("a sound URI"), theirs.expect("what is admitted is a URL"));
    assert_eq!((ours.scheme(), ours.host(), ours.path()), (theirs.scheme(), theirs.host(), theirs.path()));
    assert_eq!((ours.query(), theirs.username()), (theirs.query(), ""), "{asked:?}");
    true
}

fn scopes(text: &str) {
    let Ok(scopes) = ScopeSet::parse(text) else { return };
    let written = scopes.to_wire().expect("what was read is not empty");
    assert_eq!(ScopeSet::parse(&written), Ok(scopes), "{text:?}");
}
