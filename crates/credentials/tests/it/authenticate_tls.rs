//! Keys from an issuer behind TLS with a CA of its own.

use auth::time::Timestamp;
use credentials::config::{IssuerSource, KeySource};
use http_engine::test_support::files::{Folder, TestCa};
use http_engine::tls::policy::TlsPolicy;
use http_engine::tls::{self, CertificateFiles, ClientCertificates, Protocols, TrustAnchors};
use rcgen::{CertificateParams, SanType};
use serde_json::json;
use tokio_rustls::TlsAcceptor;

use crate::authenticate::{World, issuer};
use crate::issuer::{TestIssuer, signer, token};

const HTTP1: Protocols = Protocols { http1: true, http2: false };

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_fetched_over_tls_by_the_configured_ca_alone() {
    let (folder, authority) = (Folder::new(), TestCa::new());
    let ca = folder.write("ca.crt", &authority.pem);
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let (certificate, key) = authority.files(&folder, "idp", &params);
    let now = Timestamp::from_secs(1_800_000_000);
    let files = CertificateFiles { certificate: &certificate, key: &key };
    let server = tls::server_config(&[files], ClientCertificates::Ignored, &TlsPolicy::default(), HTTP1, now)
        .unwrap()
        .config;
    let signing = signer();
    let idp = TestIssuer::start_with(Some(TlsAcceptor::from(server))).await;
    idp.discoverable();
    idp.publish(&[&signing]);
    assert!(idp.url().starts_with("https://"));
    let token = token(&signing, idp.url(), "u1", &json!({}));

    let trusting =
        tls::client_config(&TrustAnchors::from_file(&ca).unwrap(), None, HTTP1, now).unwrap().config;
    let main = || issuer("main", idp.url(), KeySource::Discovery);
    let world = World::ready(vec![IssuerSource { tls: Some(trusting), ..main() }]).await;
    assert_eq!(world.subject(&token).await.as_deref(), Ok("u1"));

    // Another CA, and the system's: both reject, and no request goes over the untrusted connection.
    let hits = idp.hits(crate::issuer::OPENID);
    let other = folder.write("other.crt", &TestCa::new().pem);
    let other =
        tls::client_config(&TrustAnchors::from_file(&other).unwrap(), None, HTTP1, now).unwrap().config;
    for tls in [Some(other), None] {
        let world = World::ready(vec![IssuerSource { tls, ..main() }]).await;
        assert!(world.subject(&token).await.is_err());
        let error = world.status().last_error.unwrap();
        assert!(error.contains("TLS handshake failed") || error.contains("root certificates"), "{error}");
    }
    assert_eq!(idp.hits(crate::issuer::OPENID), hits);
}
