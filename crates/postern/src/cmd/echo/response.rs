//! Response with a body that is known as a whole.
//!
//! Owns: its form. Does not own: which request has which response.

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes a response. Returns whether the connection can go on.
pub(super) async fn plain<S: AsyncWrite + Unpin>(
    stream: &mut S,
    status: &str,
    kind: &str,
    body: &[u8],
    head_only: bool,
) -> std::io::Result<bool> {
    let mut out = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n").into_bytes();
    if !status.starts_with("204") {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    if !head_only {
        out.extend_from_slice(body);
    }
    stream.write_all(&out).await?;
    Ok(true)
}
