use ::pages::{Brand, BrandConfig};
use axum::{
    body::to_bytes,
    http::{HeaderMap, StatusCode},
};

use super::{
    samples::{Sample, Texts},
    *,
};

fn pages() -> Pages {
    let config = BrandConfig { name: "Example <Login>".into(), logo: None, colour: "#2f5bd0".into() };
    Pages::new(Shell::new(Brand::check(&config).unwrap(), Languages::default()).into()).unwrap()
}

async fn render(pages: &Pages, tag: &str, page: &Page<'_>) -> (StatusCode, HeaderMap, String) {
    let language = pages.languages().choose(Some(tag), None);
    let (parts, body) = pages.answer(language, page).into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

/// All pages in all languages with these texts.
async fn every(texts: Texts<'_>) -> Vec<(String, StatusCode, HeaderMap, String)> {
    let (pages, sample) = (pages(), Sample::new(texts));
    let consents = sample.consents();
    let mut all = Vec::new();
    for tag in ["en", "de"] {
        for (name, page) in sample.pages(&consents) {
            let (status, headers, body) = render(&pages, tag, &page).await;
            all.push((format!("{name}.{tag}"), status, headers, body));
        }
    }
    all
}

/// The part of a page after the style sheet.
fn after_style(body: &str) -> &str {
    body.split_once("</style>").unwrap().1
}

/// All elements of one kind, with their attributes.
fn elements<'b>(body: &'b str, name: &str) -> Vec<&'b str> {
    let open = format!("<{name} ");
    body.split(open.as_str()).skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

fn attribute<'e>(element: &'e str, name: &str) -> Option<&'e str> {
    let at = format!("{name}=\"");
    let (before, rest) = element.split_once(at.as_str())?;
    (before.is_empty() || before.ends_with(' ')).then(|| rest.split('"').next().unwrap())
}

#[tokio::test]
async fn every_page_carries_every_header() {
    for (name, _, headers, body) in every(Texts::ordinary()).await {
        for (field, value) in [
            ("content-type", "text/html; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(headers[field], value, "{name}");
        }
        assert_eq!(headers["content-language"], name.rsplit('.').next().unwrap());
        let policy = headers["content-security-policy"].to_str().unwrap();
        for directive in [
            "default-src 'none'; ",
            "img-src 'self' data:; ",
            "frame-ancestors 'none'; ",
            "base-uri 'none'; ",
        ] {
            assert!(policy.contains(directive), "{name}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{name}: {policy}");
        let leads_away = ["login", "consent", "logout."].iter().any(|p| name.starts_with(p))
            || name.starts_with("logout-client");
        let form_action = if leads_away { "form-action 'self' https:" } else { "form-action 'self'" };
        assert!(policy.ends_with(form_action), "{name}: {policy}");
        assert!(!body.contains("<script") && !body.contains(" style="), "{name}");
        let handler =
            |rest: &str| rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).starts_with('=');
        assert!(!body.split(" on").skip(1).any(handler), "{name} has an event handler");
    }
}

#[tokio::test]
async fn the_policy_admits_the_style_sheet_to_the_byte() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let (_, _, headers, body) = every(Texts::ordinary()).await.remove(0);
    let sheet = body.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, sheet.as_bytes());
    let source = format!("style-src 'sha256-{}';", STANDARD.encode(digest));
    assert!(headers["content-security-policy"].to_str().unwrap().contains(&source));
}

#[tokio::test]
async fn nothing_reflected_becomes_markup_or_turns_the_page() {
    let hostile = "</p><script>alert(1)</script>\"'><img src=x onerror=y>&amp;\u{202e}\u{0}";
    for (name, _, _, body) in every(Texts::all(hostile)).await {
        let body = after_style(&body);
        assert!(
            !body.contains("<script") && !body.contains("<img") && !body.contains("\"'>"),
            "{name}: {body}"
        );
        let page_texts = body.split("value=\"").enumerate().map(|(i, part)| {
            // Opaque form values are returned unchanged and escaped; only shown texts are cleaned.
            if i == 0 { part } else { part.split_once('"').map_or("", |(_, rest)| rest) }
        });
        assert!(!page_texts.collect::<String>().contains(['\u{202e}', '\u{0}']), "{name}");
        assert!(body.contains("&#60;script") || !name.starts_with("login"), "{name}");
    }
}

#[tokio::test]
async fn long_texts_do_not_make_long_pages() {
    let long = "w".repeat(20_000);
    let texts = Texts { opaque: "x", ..Texts::all(&long) };
    for (name, _, _, body) in every(texts).await {
        assert!(after_style(&body).len() < 12_000, "{name}: {}", after_style(&body).len());
    }
}

#[tokio::test]
async fn braces_in_foreign_texts_are_not_filled_and_ours_all_are() {
    for (name, _, _, body) in every(Texts::ordinary()).await {
        assert!(!after_style(&body).contains(['{', '}']), "{name}");
    }
    for (name, _, _, body) in every(Texts::all("{client}{user}")).await {
        assert!(!after_style(&body).contains("{client}{user}{user}"), "{name}");
    }
}

#[tokio::test]
async fn every_form_is_a_post_with_the_token() {
    for (name, _, _, body) in every(Texts::ordinary()).await {
        for form in body.split("<form ").skip(1) {
            assert!(form.starts_with("method=\"post\" action=\"/"), "{name}");
            let form = form.split_once("</form>").unwrap().0;
            assert!(
                form.contains("<input type=\"hidden\" name=\"csrf\" value=\"01JF8ZK3T6Q2W9\">"),
                "{name}"
            );
            assert!(form.contains("type=\"submit\""), "{name}");
        }
    }
}

#[tokio::test]
async fn every_field_has_a_label_a_purpose_and_its_error() {
    for (name, _, _, body) in every(Texts::ordinary()).await {
        let labels: Vec<_> = elements(&body, "label").iter().filter_map(|l| attribute(l, "for")).collect();
        let ids: Vec<_> = body.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        for id in &ids {
            assert_eq!(ids.iter().filter(|other| other == &id).count(), 1, "{name}: id {id} is not unique");
        }
        for input in elements(&body, "input") {
            if attribute(input, "type") == Some("hidden") || input.contains("aria-hidden") {
                continue;
            }
            let id = attribute(input, "id").unwrap();
            assert!(labels.contains(&id), "{name}: {id} has no label");
            let purpose = attribute(input, "autocomplete").unwrap();
            assert!(
                ["username", "current-password", "new-password", "one-time-code", "off"].contains(&purpose),
                "{name}"
            );
            let described = attribute(input, "aria-describedby").unwrap_or_default();
            assert!(described.split_whitespace().all(|d| ids.contains(&d)), "{name}: {described}");
            assert_eq!(input.contains("aria-invalid"), described.contains("problem"), "{name}: {id}");
        }
        assert_eq!(body.contains("id=\"problem\""), body.contains("role=\"alert\""), "{name}");
    }
}

#[tokio::test]
async fn every_page_has_a_language_a_title_one_heading_and_one_main() {
    for (name, _, _, body) in every(Texts::ordinary()).await {
        let tag = name.rsplit('.').next().unwrap();
        assert!(body.starts_with(&format!("<!doctype html>\n<html lang=\"{tag}\" dir=\"ltr\">")), "{name}");
        assert!(body.contains(" · Example &#60;Login&#62;</title>"), "{name}");
        assert_eq!(body.matches("<h1>").count(), 1, "{name}");
        assert_eq!(body.matches("<main>").count(), 1, "{name}");
        assert!(!body.contains("user-scalable") && !body.contains("maximum-scale"), "{name}");
    }
}

#[tokio::test]
async fn the_hint_is_prefilled_unless_it_would_deceive() {
    let pages = pages();
    let form = Form { action: "/login", csrf: "t", hidden: &[] };
    let login =
        Login { form, client: None, hint: None, problem: None, forgot: None, back: None, form_targets: &[] };
    let long = "x".repeat(255);
    for (hint, shown) in
        [("ada@example.com", "ada@example.com"), ("a\"b", "a&#34;b"), ("a\u{202e}b", ""), (long.as_str(), "")]
    {
        let (_, _, body) = render(&pages, "en", &Page::Login(Login { hint: Some(hint), ..login })).await;
        assert!(
            body.contains(&format!("name=\"username\" type=\"text\" value=\"{shown}\"")),
            "{hint}: {body}"
        );
    }
}

#[tokio::test]
async fn statuses_follow_the_tables() {
    for (name, status, _, _) in every(Texts::ordinary()).await {
        let expected = match name.split('.').next().unwrap() {
            "login-wrong" => 403,
            "login-new-password-short"
            | "forgot-empty"
            | "device-unknown"
            | "account-bare"
            | "account-refused"
            | "error"
            | "error-link"
            | "error-back" => 400,
            "error-server" => 500,
            _ => 200,
        };
        assert_eq!(status.as_u16(), expected, "{name}");
    }
}

#[tokio::test]
async fn every_error_says_its_code_and_the_request() {
    let pages = pages();
    let mut codes = Vec::new();
    for kind in ErrorKind::ALL {
        let error = ErrorPage { kind, request_id: "01JF8ZK3T6Q2W9", back: None };
        let (status, _, body) = render(&pages, "de", &Page::Error(error)).await;
        let (expected, code) = kind.row();
        assert_eq!(status, expected);
        assert!(body.contains(code) && body.contains("01JF8ZK3T6Q2W9"), "{kind:?}");
        codes.push(code);
    }
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), ErrorKind::ALL.len(), "a code means one thing");
}

#[tokio::test]
async fn only_other_sessions_can_be_ended() {
    let all = every(Texts::ordinary()).await;
    let body = |name: &str| all.iter().find(|(n, ..)| n == name).unwrap().3.clone();
    assert_eq!(body("account.en").matches("action=\"/account/sessions/end\"").count(), 2);
    assert_eq!(body("account.en").matches("This session").count(), 1);
    assert!(!body("account-bare.en").contains("/account/sessions/end"));
}
