//! The closed sets of words by which things are counted, logged and traced.
//!
//! Owns: how a request ended, which protocol a connection speaks, why one was refused. Each is an enum so
//! that a counter is an array slot and no peer can invent a series. Does not own: who counts ([`telemetry::metrics`]).

/// Declares a label enum: its variants in slot order with their documentation and label text.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// All values, in slot order.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The text used as label value and in logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

label! {
    /// How a request ended, seen from the gateway. Not the status: an upstream's own 403 is `Allowed`.
    Outcome {
        /// Permitted, forwarded, and answered by the upstream (whatever it said).
        Allowed => "allowed",
        /// Answered by the gateway itself without an upstream, such as its own key set.
        Local => "local",
        /// No credential, or one that does not hold: 401.
        Unauthenticated => "unauthenticated",
        /// Known, and may not: 403.
        Forbidden => "forbidden",
        /// Not one canonical request: 400.
        Malformed => "malformed",
        /// Head, target or body over a limit: 413, 414, 431.
        TooLarge => "too_large",
        /// No route matches: 404.
        NoRoute => "no_route",
        /// A limit of ours or of the upstream is reached: 503.
        Overloaded => "overloaded",
        /// The authority that would know (keys, introspection) cannot be asked: 503.
        AuthUnavailable => "auth_unavailable",
        /// No endpoint reachable, or its answer was broken: 502.
        UpstreamError => "upstream_error",
        /// A deadline of the exchange passed: 504, or 408 towards a slow client.
        Timeout => "timeout",
        /// The client went away first.
        ClientAborted => "client_aborted",
        /// Broken off by the gateway itself: it stopped before the request was over, or failed in handling it.
        Unfinished => "unfinished",
    }
}

label! {
    /// The hundreds of a status code.
    StatusClass {
        /// Nothing was answered.
        Unanswered => "none",
        /// 1xx; as a final status only 101.
        Informational => "1xx",
        /// 2xx.
        Success => "2xx",
        /// 3xx.
        Redirection => "3xx",
        /// 4xx.
        ClientError => "4xx",
        /// 5xx.
        ServerError => "5xx",
    }
}

impl StatusClass {
    /// The class of `status`; 0 and whatever else is no status code (RFC 9110 §15) count as unanswered.
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
    /// What a downstream connection speaks, known once the first bytes or ALPN say so.
    Protocol {
        /// HTTP/1.0 or HTTP/1.1.
        Http1 => "http1",
        /// HTTP/2.
        Http2 => "http2",
        /// HTTP/1 until a protocol switch (101), whatever bytes since.
        Tunnel => "tunnel",
    }
}

label! {
    /// Why an accepted connection was closed before its first request.
    Refusal {
        /// The listener's connection limit is reached.
        Limit => "limit",
        /// A PROXY protocol header was missing, broken, late or from a peer that may not send one.
        ProxyProtocol => "proxy_protocol",
        /// No byte of a protocol this listener speaks.
        Protocol => "protocol",
    }
}

label! {
    /// Why a TLS handshake failed.
    HandshakeFailure {
        /// Not finished in time.
        Timeout => "timeout",
        /// The peer went away.
        Disconnected => "disconnected",
        /// The client certificate was missing or not acceptable.
        Certificate => "certificate",
        /// Version, cipher suite, ALPN or record that cannot be agreed on or understood.
        Protocol => "protocol",
    }
}

label! {
    /// What came of wanting to know of an authorizer whether a request may pass.
    Consulted {
        /// It was asked, and the request may.
        Allowed => "allowed",
        /// It was asked, and answers the request itself.
        Refused => "refused",
        /// It was asked, and says that it failed (5xx).
        Failed => "failed",
        /// There was no answer in time.
        Timeout => "timeout",
        /// It could not be reached, or broke off.
        Unreachable => "unreachable",
        /// Its answer could not be used.
        Malformed => "malformed",
        /// It knows less of what was revoked than is known here.
        Behind => "behind",
        /// It was not asked: as many questions were under way as may be.
        Busy => "busy",
        /// An answer was kept.
        Hit => "hit",
        /// Another request asked the same, and its answer was shared.
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
