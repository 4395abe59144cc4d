//! Load of a file: how its requests arrived.
//!
//! Owns: the kind of a load ([`ParsedLoad`]), and whether a rate that was asked for was sent.
//! Does not own: the formats.

use crate::formatting;
use crate::record::Arrivals;

/// Least share of the rate that was asked for that has to be sent: below it, the requests did not
/// arrive at that rate.
const MIN_SENT_SHARE: f64 = 0.9;

/// The load that the tool sent, as far as the file says.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedLoad {
    pub(super) arrivals: Arrivals,
    /// Workers of a closed loop, or most requests in flight.
    pub(super) concurrency: Option<u32>,
    /// Requests per second that the tool was asked to send.
    pub(super) rate_per_s: Option<f64>,
}

/// Rates of a load, requests per second.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    /// The rate that the tool was asked for.
    pub(super) asked: f64,
    /// The rate that it sent.
    pub(super) sent: f64,
}

/// What a tool that sends at a rate waits for.
#[derive(Clone, Copy)]
pub(super) enum WaitsFor {
    /// Each worker waits for its response before it sends again.
    Responses,
    /// No request is sent while all connections are in use.
    Connections,
    /// It does not wait.
    Nothing,
}

impl ParsedLoad {
    /// Workers that each wait for their response.
    pub(super) fn closed(workers: Option<u32>) -> Self {
        Self { arrivals: Arrivals::Closed, concurrency: workers, rate_per_s: None }
    }

    /// The file does not say how requests arrived.
    pub(super) fn unknown(in_flight: Option<u32>) -> Self {
        Self { arrivals: Arrivals::Unknown, concurrency: in_flight, rate_per_s: None }
    }

    /// At the rate that was asked for, if it was sent. If it was not, responses set the pace of
    /// workers that wait for them: that is a closed loop. Adds a note about it.
    pub(super) fn at_rate(
        rates: Rates,
        in_flight: Option<u32>,
        waits_for: WaitsFor,
        notes: &mut Vec<String>,
    ) -> Self {
        if rates.sent < MIN_SENT_SHARE * rates.asked {
            let [asked, sent] = [rates.asked, rates.sent].map(formatting::digits);
            let why = waits_for.why_fewer(in_flight);
            notes.push(format!("{asked}/s were asked for, {sent}/s were sent: {why}"));
            return match waits_for {
                WaitsFor::Responses => Self::closed(in_flight),
                WaitsFor::Connections | WaitsFor::Nothing => Self::unknown(in_flight),
            };
        }
        match waits_for {
            WaitsFor::Responses => {
                notes.push(
                    "requests were sent at a rate, by workers that wait for responses: latencies count from when they were sent, not from when they were due"
                        .to_owned(),
                );
            }
            WaitsFor::Connections => {
                notes.push(
                    "requests were sent at a rate, but none was sent while all connections were in use: latencies count from when requests were sent, not from when they were due"
                        .to_owned(),
                );
            }
            WaitsFor::Nothing => {}
        }
        Self { arrivals: Arrivals::Open, concurrency: in_flight, rate_per_s: Some(rates.asked) }
    }
}

impl WaitsFor {
    /// Why fewer requests were sent than asked for.
    fn why_fewer(self, in_flight: Option<u32>) -> String {
        match (self, in_flight) {
            (Self::Responses, Some(workers)) => format!("its {workers} workers waited for responses"),
            (Self::Responses, None) => "its workers waited for responses".to_owned(),
            (Self::Connections, _) => "none was sent while all connections were in use".to_owned(),
            (Self::Nothing, _) => "the file does not say why".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_load_only_where_nine_tenths_of_it_were_sent() {
        let at = |sent, waits_for| {
            let mut notes = Vec::new();
            let load = ParsedLoad::at_rate(Rates { asked: 1000.0, sent }, Some(8), waits_for, &mut notes);
            (load, notes.join("; "))
        };
        let open = ParsedLoad { arrivals: Arrivals::Open, concurrency: Some(8), rate_per_s: Some(1000.0) };
        for sent in [901.0, 1000.0, 1200.0, f64::INFINITY] {
            let (load, note) = at(sent, WaitsFor::Responses);
            assert_eq!(load, open, "{sent}");
            assert!(note.contains("not from when they were due"), "{note}");
        }
        let (load, note) = at(899.0, WaitsFor::Responses);
        assert_eq!(load, ParsedLoad::closed(Some(8)));
        assert_eq!(note, "1000/s were asked for, 899/s were sent: its 8 workers waited for responses");
        let (load, note) = at(899.0, WaitsFor::Connections);
        assert_eq!(load, ParsedLoad::unknown(Some(8)));
        assert!(note.contains("899/s were sent: none was sent while all connections"), "{note}");
        let (load, note) = at(899.0, WaitsFor::Nothing);
        assert_eq!(load, ParsedLoad::unknown(Some(8)));
        assert!(note.ends_with("the file does not say why"), "{note}");
        assert_eq!(at(1000.0, WaitsFor::Nothing), (open, String::new()));
    }
}
