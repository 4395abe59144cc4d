//! Rendezvous hashing: the endpoint of a client.
//!
//! Owns: the score of an endpoint for a client. Every process computes the same score, and it does
//! not depend on the other endpoints: a change moves only the clients of an endpoint that is gone,
//! and those that a new endpoint receives. Does not own: which endpoints may be chosen
//! ([`super::balance`]).

/// Score of an endpoint for a client, in proportion to its weight (weighted rendezvous hashing). The
/// highest wins.
pub(super) fn score(client: u64, endpoint: u64, weight: u32) -> f64 {
    let hash = mix(client ^ endpoint);
    // Between 0 and 1, exclusive.
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -f64::from(weight) / uniform.ln()
}

/// Hash of an endpoint's name (FNV-1a), the same in every process.
pub(super) fn hash_of(name: &str) -> u64 {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mix(hash)
}

/// Spreads every bit over all others (the finalizer of `SplitMix64`).
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: u64 = 10_000;

    fn chosen(client: u64, endpoints: &[(&str, u32)]) -> usize {
        let score_of = |at: &usize| score(mix(client), hash_of(endpoints[*at].0), endpoints[*at].1);
        (0..endpoints.len()).max_by(|one, other| score_of(one).total_cmp(&score_of(other))).unwrap()
    }

    #[test]
    fn clients_spread_by_weight() {
        let endpoints = [("10.0.0.1:80", 1), ("10.0.0.2:80", 1), ("10.0.0.3:80", 2)];
        let mut counts = [0u64; 3];
        for client in 0..CLIENTS {
            counts[chosen(client, &endpoints)] += 1;
        }
        for (count, (_, weight)) in counts.iter().zip(endpoints) {
            let expected = CLIENTS / 4 * u64::from(weight);
            assert!(count.abs_diff(expected) < expected / 10, "{counts:?}");
        }
    }

    #[test]
    fn a_change_moves_only_the_clients_that_must_move() {
        let all = [("10.0.0.1:80", 1), ("10.0.0.2:80", 1), ("10.0.0.3:80", 1)];
        let mut moved = 0;
        for client in 0..CLIENTS {
            let (before, after) = (chosen(client, &all[..2]), chosen(client, &all));
            assert!(after == before || after == 2, "only the new endpoint receives clients");
            moved += u64::from(after != before);
        }
        assert!(moved.abs_diff(CLIENTS / 3) < CLIENTS / 30, "{moved}");
    }

    #[test]
    fn scores_are_the_same_in_every_process() {
        // A gateway of another version must choose the same endpoint.
        assert_eq!(hash_of("10.0.0.1:80"), 0xDBBC_907F_2153_1A73);
        assert!([0, 1, u64::MAX].iter().all(|client| score(*client, hash_of("a"), 1).is_finite()));
    }
}
