//! Labels: closed sets of values for metrics, logs and traces.
//!
//! Owns: how a request ended, the protocol of a connection, why a connection was refused, and
//! similar. Each set is an enum, so a counter is an array slot and no peer can create a time
//! series. Does not own: counting (`telemetry::metrics`).

/// Declares a label enum: its variants in slot order with documentation and label text.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// All values, in slot order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];
            /// Number of values.
            pub const COUNT: usize = Self::ALL.len();
            /// The texts of all values, in slot order.
            pub const ALL_TEXTS: [&'static str; Self::COUNT] = [$($text),+];

            /// The text used as label value and in logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

label! {
    /// How a request ended from the gateway's view. Not the status: a 403 of the upstream is
    /// `Allowed`.
    Outcome {
        /// Authorized, forwarded, and answered by the upstream with any status.
        Allowed => "allowed",
        /// Answered by the gateway itself without an upstream, for example with its key set.
        Local => "local",
        /// No credential, or an invalid one: 401.
        Unauthenticated => "unauthenticated",
        /// Authenticated but not authorized: 403.
        Forbidden => "forbidden",
        /// Not a single canonical request: 400.
        Malformed => "malformed",
        /// Head, target or body exceeds a limit: 413, 414, 431.
        TooLarge => "too_large",
        /// No route matches: 404. Or the request came over a connection for another listener: 421.
        NoRoute => "no_route",
        /// A limit of the gateway or of the upstream is reached: 503.
        Overloaded => "overloaded",
        /// The source of keys or the token authority is unavailable: 503.
        AuthUnavailable => "auth_unavailable",
        /// No endpoint is reachable, or its response was invalid: 502.
        UpstreamError => "upstream_error",
        /// A time limit of the exchange passed: 504, or 408 for a slow client.
        Timeout => "timeout",
        /// The client went away before the end.
        ClientAborted => "client_aborted",
        /// Aborted by the gateway: it stopped before the end of the request, or failed to process
        /// it.
        Unfinished => "unfinished",
    }
}

label! {
    /// How the copy of a request for a mirror ended.
    MirrorResult {
        /// Its response arrived completely, with any status, and was discarded.
        Completed => "completed",
        /// The mirror could not be reached, broke off, or did not answer in time.
        Failed => "failed",
        /// The gateway gave the copy up: too many requests in flight, a mirror that accepts the body
        /// too slowly, or a client that did not complete it.
        Dropped => "dropped",
    }
}

label! {
    /// Class of a status code: its first digit.
    StatusClass {
        /// No response was sent.
        Unanswered => "none",
        /// 1xx; as a final status only 101.
        Informational => "1xx",
        /// 2xx: successful.
        Success => "2xx",
        /// 3xx: redirection.
        Redirection => "3xx",
        /// 4xx: client error.
        ClientError => "4xx",
        /// 5xx: server error.
        ServerError => "5xx",
    }
}

impl StatusClass {
    /// The class of `status`; 0 and other invalid codes (RFC 9110 §15) count as unanswered.
    #[inline]
    pub const fn of(status: u16) -> Self {
        match status {
            100..=199 => Self::Informational,
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Unanswered,
        }
    }
}

label! {
    /// Protocol of a downstream connection, known after the first bytes or ALPN.
    Protocol {
        /// HTTP/1.0 or HTTP/1.1.
        Http1 => "http1",
        /// HTTP/2 (RFC 9113).
        Http2 => "http2",
        /// HTTP/1 until a protocol switch (101), then raw bytes.
        Tunnel => "tunnel",
    }
}

label! {
    /// Why an accepted connection was closed before its first request.
    Refusal {
        /// The connection limit of the listener is reached.
        Limit => "limit",
        /// A PROXY protocol header was missing, invalid or late, or the peer may not send one.
        ProxyProtocol => "proxy_protocol",
        /// The first bytes belong to no protocol of this listener.
        Protocol => "protocol",
    }
}

label! {
    /// Why a TLS handshake failed.
    HandshakeFailure {
        /// It did not complete in time.
        Timeout => "timeout",
        /// The peer closed the connection.
        Disconnected => "disconnected",
        /// The client certificate was missing or not accepted.
        Certificate => "certificate",
        /// No common version, cipher suite or ALPN protocol, or an invalid record.
        Protocol => "protocol",
    }
}

label! {
    /// Result of a query to an authorizer about a request.
    Consulted {
        /// The authorizer allowed the request.
        Allowed => "allowed",
        /// The authorizer refused, and its response is sent to the client.
        Refused => "refused",
        /// The authorizer reported a failure (5xx).
        Failed => "failed",
        /// The authorizer did not answer in time.
        Timeout => "timeout",
        /// The authorizer could not be reached, or broke the connection.
        Unreachable => "unreachable",
        /// The authorizer's answer was invalid.
        Malformed => "malformed",
        /// The authorizer has applied fewer revocations than this gateway.
        Behind => "behind",
        /// No query was sent: the limit of queries in flight is reached.
        Busy => "busy",
        /// A cached answer was used.
        Hit => "hit",
        /// Another request sent the same query, and its answer was shared.
        Coalesced => "coalesced",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_order_of_all() {
        for (slot, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, slot);
        }
        for (slot, class) in StatusClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, slot);
        }
    }

    #[test]
    fn classes_of_statuses() {
        for (status, class) in [
            (0, "none"),
            (99, "none"),
            (101, "1xx"),
            (200, "2xx"),
            (304, "3xx"),
            (499, "4xx"),
            (500, "5xx"),
            (599, "5xx"),
            (600, "none"),
            (u16::MAX, "none"),
        ] {
            assert_eq!(StatusClass::of(status).as_str(), class, "{status}");
        }
    }
}
