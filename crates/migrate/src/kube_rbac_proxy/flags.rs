//! The flags of kube-rbac-proxy 0.21, and of the fork of Open Data Hub.

use crate::flags::{Flag, FlagKind, Syntax};

/// How the program reads its command line.
pub const SYNTAX: Syntax = Syntax {
    program: "kube-rbac-proxy",
    tables: &[&FLAGS],
    letters: &[('h', "help"), ('v', "v")],
    single_dash: false,
    underscores: true,
};

/// Flags that are accepted and do nothing.
pub(super) const DISABLED: [&str; 11] = [
    "logtostderr",
    "add-dir-header",
    "alsologtostderr",
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "one-output",
    "skip-headers",
    "skip-log-headers",
    "stderrthreshold",
];

/// Flags about the program's own log.
pub(super) const LOGGING: [&str; 3] = ["v", "vmodule", "log-flush-frequency"];

/// Flags that print something and end the program.
pub(super) const PRINTING: [&str; 2] = ["help", "version"];

const FLAGS: [Flag; 53] = [
    Flag::new("insecure-listen-address", FlagKind::Text),
    Flag::new("secure-listen-address", FlagKind::Text),
    Flag::new("upstream", FlagKind::Text),
    Flag::new("upstream-force-h2c", FlagKind::Switch),
    Flag::new("upstream-ca-file", FlagKind::Text),
    Flag::new("upstream-timeout", FlagKind::Text),
    Flag::new("config-file", FlagKind::Text),
    Flag::new("allow-paths", FlagKind::List),
    Flag::new("ignore-paths", FlagKind::List),
    Flag::new("proxy-endpoints-port", FlagKind::Text),
    Flag::new("tls-cert-file", FlagKind::Text),
    Flag::new("tls-private-key-file", FlagKind::Text),
    Flag::new("tls-min-version", FlagKind::Text),
    Flag::new("tls-cipher-suites", FlagKind::List),
    Flag::new("tls-reload-interval", FlagKind::Text),
    Flag::new("upstream-client-cert-file", FlagKind::Text),
    Flag::new("upstream-client-key-file", FlagKind::Text),
    Flag::new("client-ca-file", FlagKind::Text),
    Flag::new("auth-header-fields-enabled", FlagKind::Switch),
    Flag::new("auth-header-user-field-name", FlagKind::Text),
    Flag::new("auth-header-groups-field-name", FlagKind::Text),
    Flag::new("auth-header-groups-field-separator", FlagKind::Text),
    Flag::new("auth-token-audiences", FlagKind::List),
    Flag::new("oidc-issuer", FlagKind::Text),
    Flag::new("oidc-clientID", FlagKind::Text),
    Flag::new("oidc-groups-claim", FlagKind::Text),
    Flag::new("oidc-username-claim", FlagKind::Text),
    Flag::new("oidc-username-prefix", FlagKind::Text),
    Flag::new("oidc-groups-prefix", FlagKind::Text),
    Flag::new("oidc-sign-alg", FlagKind::Repeated),
    Flag::new("oidc-ca-file", FlagKind::Text),
    Flag::new("kubeconfig", FlagKind::Text),
    Flag::new("kube-api-qps", FlagKind::Text),
    Flag::new("kube-api-burst", FlagKind::Text),
    Flag::new("http2-disable", FlagKind::Switch),
    Flag::new("http2-max-concurrent-streams", FlagKind::Text),
    Flag::new("http2-max-size", FlagKind::Text),
    Flag::new("logtostderr", FlagKind::Switch),
    Flag::new("add-dir-header", FlagKind::Switch),
    Flag::new("alsologtostderr", FlagKind::Switch),
    Flag::new("log-backtrace-at", FlagKind::Text),
    Flag::new("log-dir", FlagKind::Text),
    Flag::new("log-file", FlagKind::Text),
    Flag::new("log-file-max-size", FlagKind::Text),
    Flag::new("one-output", FlagKind::Switch),
    Flag::new("skip-headers", FlagKind::Switch),
    Flag::new("skip-log-headers", FlagKind::Switch),
    Flag::new("stderrthreshold", FlagKind::Text),
    Flag::new("help", FlagKind::Switch),
    Flag::new("version", FlagKind::Switch),
    Flag::new("v", FlagKind::Text),
    Flag::new("vmodule", FlagKind::Text),
    Flag::new("log-flush-frequency", FlagKind::Text),
];
