//! Reflection: the response that describes a request as it arrived.

use serde::Serialize;

/// A request as it arrived.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Reflection {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: &'static str,
    /// Names and values, in the order of arrival. Bytes that are not UTF-8 are shown as Latin-1.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: BodyFacts,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) connection: ConnectionFacts,
}

impl Reflection {
    /// Formats the reflection as JSON with one line per header field.
    pub(super) fn pretty(&self) -> String {
        let list = |fields: &[(String, String)]| match fields {
            [] => "[]".to_owned(),
            fields => {
                let lines: Vec<String> = fields.iter().map(|pair| format!("    {}", json(pair))).collect();
                format!("[\n{}\n  ]", lines.join(",\n"))
            }
        };
        let members = [
            ("method", json(&self.method)),
            ("target", json(&self.target)),
            ("version", json(&self.version)),
            ("headers", list(&self.headers)),
            ("body", json(&self.body)),
            ("trailers", list(&self.trailers)),
            ("connection", json(&self.connection)),
        ];
        let lines: Vec<String> =
            members.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct BodyFacts {
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// Body as text. Absent when it is too long or not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
}

/// Connection that a request arrived on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ConnectionFacts {
    pub(super) peer: String,
    pub(super) local: String,
    /// Number of the connection, counted from 1.
    pub(super) number: u64,
    /// Number of the request on its connection, counted from 1.
    pub(super) request: u64,
}

/// Serializes a value. Strings, numbers and lists of them always succeed.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
