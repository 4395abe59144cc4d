//! Files of Fortio.

use lab_analysis::offline::import::import;
use lab_analysis::record::{Arrivals, Outcome, Record};

use super::{endings, fixture, iteration, notes, read, stated, told};

#[test]
fn fortios_json_has_the_percentiles_that_it_prints() {
    let record = read("fortio.json");
    let of = iteration(&record);
    let printed = fixture("fortio.json.printed");
    let targets = printed.lines().filter_map(|line| line.strip_prefix("# target ")?.split_once("% "));
    let mut compared = 0;
    for (percent, seconds) in targets {
        let (share, us) = (percent.parse::<f64>().unwrap() / 100.0, seconds.parse::<f64>().unwrap() * 1e6);
        // Six digits are printed.
        assert!((stated(of, share) - us).abs() <= us * 1e-5, "{share}: {} {us}", stated(of, share));
        compared += 1;
    }
    assert_eq!(compared, 5);
    let line = printed.lines().find_map(|line| line.strip_prefix("Code 200 : ")).unwrap();
    assert_eq!(of.count(Outcome::Ok), line.split(' ').next().unwrap().parse::<u64>().unwrap());
    assert!(of.latency(Outcome::Ok).is_none(), "its buckets are too coarse for a histogram");
}

#[test]
fn a_rate_is_an_open_load_and_none_a_closed_loop() {
    let load = |record: &Record| {
        let load = &record.variants[0].load;
        (load.arrivals, load.rate_per_s, load.concurrency)
    };
    let paced = read("fortio.json");
    assert_eq!(load(&paced), (Arrivals::Open, Some(200.0), Some(4)));
    assert!(notes(&paced).iter().any(|note| note.contains("when they were sent")), "{:?}", notes(&paced));
    let asked = "\"RequestedQPS\": \"200\"";
    assert!(fixture("fortio.json").contains(asked));
    let closed = fixture("fortio.json").replace(asked, "\"RequestedQPS\": \"max\"");
    let closed = import(&closed, None, &told("fortio.json")).unwrap();
    assert_eq!(load(&closed), (Arrivals::Closed, None, Some(4)));
    let unknown = fixture("fortio.json").replace(asked, "\"RequestedQPS\": \"soon\"");
    let said = import(&unknown, None, &told("fortio.json")).unwrap_err().to_string();
    assert!(said.contains("`soon` is not a rate (RequestedQPS)"), "{said}");
}

/// 8 workers and responses of 13 ms cannot make 10 000 requests a second.
#[test]
fn a_rate_that_was_not_sent_was_a_closed_loop() {
    let of = |asked: &str| {
        let content = format!(
            r#"{{"RunType":"HTTP","RequestedQPS":"{asked}","ActualQPS":600,"ActualDuration":10000000000,"NumThreads":8,
            "DurationHistogram":{{"Count":6000,"Min":0.012,"Max":0.02,"Avg":0.0133}},"RetCodes":{{"200":6000}}}}"#
        );
        import(&content, None, &told("fortio.json")).unwrap()
    };
    let late = of("10000");
    let load = &late.variants[0].load;
    assert_eq!((load.arrivals, load.rate_per_s, load.concurrency), (Arrivals::Closed, None, Some(8)));
    let why = "/s were asked for, 600/s were sent: its 8 workers waited for responses";
    assert!(notes(&late).iter().any(|note| note.ends_with(why)), "{:?}", notes(&late));
    assert!(!notes(&late).iter().any(|note| note.contains("sent at a rate")), "{:?}", notes(&late));
    assert_eq!(of("660").variants[0].load.arrivals, Arrivals::Open, "nine tenths of it were sent");
    assert_eq!(of("670").variants[0].load.arrivals, Arrivals::Closed);
}

#[test]
fn codes_are_statuses_or_grpcs_words() {
    let of = |codes: &str| {
        format!(
            r#"{{"RunType":"x","RequestedQPS":"max","ActualQPS":10,"ActualDuration":1000000000,"NumThreads":2,
            "DurationHistogram":{{"Count":10,"Min":0.001,"Max":0.01,"Avg":0.005}},"RetCodes":{{{codes}}}}}"#
        )
    };
    let seen = endings(&of(r#""200":6,"-1":2,"404":2"#), "fortio.json");
    let of_seen =
        |outcome| seen.iter().filter(|ending| ending.0 == outcome).map(|ending| ending.3).sum::<u64>();
    assert_eq!([Outcome::Ok, Outcome::Refused, Outcome::Failed].map(of_seen), [6, 2, 2], "{seen:?}");
    let seen =
        endings(&of(r#""SERVING":4,"OK":3,"NOT_SERVING":1,"Unavailable":1,"PermissionDenied":1"#), "x");
    let faults: Vec<_> = seen.iter().map(|ending| (ending.0, &*ending.2, ending.3)).collect();
    for one in [
        (Outcome::Refused, "not serving", 1),
        (Outcome::Failed, "gRPC Unavailable", 1),
        (Outcome::Refused, "gRPC PermissionDenied", 1),
    ] {
        assert!(faults.contains(&one), "{faults:?}");
    }
    let seen = endings(&of(r#""OK":9,"read tcp: i/o timeout":1"#), "x");
    let failed = seen.iter().find(|ending| ending.0 == Outcome::Failed).unwrap();
    assert_eq!((&*failed.2, &*failed.4), ("error", "read tcp: i/o timeout"));
}

#[test]
fn a_cut_file_says_so() {
    let whole = fixture("fortio.json");
    let said = import(&whole[..whole.len() - 40], None, &told("fortio.json")).unwrap_err().to_string();
    assert!(said.contains("`fortio.json`") && said.contains("is cut off: EOF"), "{said}");
}
