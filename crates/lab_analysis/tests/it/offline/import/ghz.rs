//! Files of ghz.

use lab_analysis::offline::import::import;
use lab_analysis::offline::report::sheet;
use lab_analysis::record::{Arrivals, Outcome};

use super::{fixture, histogram_is_near, iteration, notes, read, stated, told};

#[test]
fn ghzs_calls_have_the_percentiles_of_its_report() {
    let record = read("ghz.json");
    let of = iteration(&record);
    let json: serde_json::Value = serde_json::from_str(&fixture("ghz.json")).unwrap();
    let printed = json["latencyDistribution"].as_array().unwrap();
    assert_eq!(printed.len(), 7);
    for one in printed {
        let (percent, ns) = (one["percentage"].as_f64().unwrap(), one["latency"].as_f64().unwrap());
        // ghz computes with seconds in floating point.
        assert!(
            (stated(of, percent / 100.0) * 1e3 - ns).abs() <= 1.5,
            "{percent}: {}",
            stated(of, percent / 100.0)
        );
    }
    let times = of.stated.as_ref().unwrap();
    for (own, name) in [(times.mean_us, "average"), (times.min_us, "fastest"), (times.max_us, "slowest")] {
        assert!((own.unwrap() * 1e3 - json[name].as_f64().unwrap()).abs() <= 1.5, "{name}: {own:?}");
    }
    assert!((times.per_s.unwrap() / json["rps"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{:?}", times.per_s);
    let counts = &json["statusCodeDistribution"];
    assert_eq!(Some(of.count(Outcome::Ok)), counts["OK"].as_u64());
    assert_eq!(Some(of.count(Outcome::Refused)), counts["NotFound"].as_u64());
    let histogram = of.latency(Outcome::Ok).unwrap();
    assert!((histogram.micros(0.5) - stated(of, 0.5)).abs() < 1.0);
    let text = sheet(&record).markdown();
    assert!(text.contains("gRPC NotFound"), "{text}");
}

#[test]
fn ghz_says_how_it_sent() {
    let whole = fixture("ghz.json");
    let load = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        let record = import(&whole.replacen(from, to, 1), None, &told("ghz.json")).unwrap();
        let load = record.variants[0].load.clone();
        (load.arrivals, load.rate_per_s, load.concurrency, notes(&record).len())
    };
    let schedule = "\"load-schedule\":\"const\"";
    let plain = load(schedule, schedule);
    assert_eq!(plain, (Arrivals::Closed, None, Some(2), 1));
    let paced = load(schedule, &format!("\"rps\": 50, {schedule}"));
    assert_eq!(paced, (Arrivals::Open, Some(50.0), Some(2), 2));
    let open = load(schedule, &format!("\"rps\": 50, \"async\": true, {schedule}"));
    assert_eq!(open, (Arrivals::Open, Some(50.0), None, 1));
    let stepped = load(schedule, "\"load-schedule\":\"step\"");
    assert_eq!((stepped.0, stepped.3), (Arrivals::Unknown, 2));
    let counted = whole.replacen(schedule, &format!("\"count-errors\":true,{schedule}"), 1);
    let record = import(&counted, None, &told("ghz.json")).unwrap();
    histogram_is_near(iteration(&record), 0.5);
    assert!(notes(&record)[0].contains("all calls"), "{:?}", notes(&record));
}

#[test]
fn a_rate_that_was_not_sent_is_no_open_load() {
    let of = |options: &str, calls: &[(&str, u64)]| {
        let call = |(ended, ms): &(&str, u64)| {
            format!(
                r#"{{"timestamp":"2026-01-01T00:00:{ended}Z","latency":{ms}000000,"error":"","status":"OK"}}"#
            )
        };
        let calls: Vec<String> = calls.iter().map(call).collect();
        let content = format!(
            r#"{{"options":{{"concurrency":2,{options}}},"count":4,"total":5400000000,"statusCodeDistribution":{{}},
            "latencyDistribution":null,"details":[{}]}}"#,
            calls.join(",")
        );
        let record = import(&content, None, &told("ghz.json")).unwrap();
        let load = &record.variants[0].load;
        (load.arrivals, load.rate_per_s, load.concurrency, notes(&record).last().unwrap().clone())
    };
    // Both workers wait for a second, and send again.
    let slow = [("01.000", 1000), ("01.000", 1000), ("02.000", 1000), ("02.000", 1000)];
    let late = of(r#""rps":10"#, &slow);
    assert_eq!((late.0, late.1, late.2), (Arrivals::Closed, None, Some(2)));
    assert_eq!(late.3, "10.0/s were asked for, 4.00/s were sent: its 2 workers waited for responses");
    let unpaired = of(r#""rps":10,"async":true"#, &slow);
    assert_eq!((unpaired.0, unpaired.1, unpaired.2), (Arrivals::Unknown, None, None));
    assert!(unpaired.3.ends_with("4.00/s were sent: the file does not say why"), "{}", unpaired.3);
    // The last call takes long, but all were sent in time.
    let long = [("01.010", 10), ("01.110", 10), ("01.210", 10), ("06.300", 5000)];
    let sent = of(r#""rps":10"#, &long);
    assert_eq!((sent.0, sent.1, sent.2), (Arrivals::Open, Some(10.0), Some(2)));
}

#[test]
fn calls_that_ghz_itself_ends_are_not_counted() {
    let call = |status: &str, error: &str| {
        format!(
            r#"{{"timestamp":"2026-01-01T00:00:01Z","latency":5000000,"error":"{error}","status":"{status}"}}"#
        )
    };
    let of = |calls: &[String]| {
        format!(
            r#"{{"options":{{}},"count":3,"total":1000000000,"statusCodeDistribution":{{}},"latencyDistribution":null,"details":[{}]}}"#,
            calls.join(",")
        )
    };
    let ended = "rpc error: code = Canceled desc = grpc: the client connection is closing";
    let calls =
        [call("OK", ""), call("Canceled", ended), call("Unavailable", "rpc error: connection refused")];
    let record = import(&of(&calls), None, &told("ghz.json")).unwrap();
    let it = iteration(&record);
    assert_eq!((it.count(Outcome::Ok), it.count(Outcome::Failed)), (1, 1));
    assert!(
        notes(&record).iter().any(|note| note.starts_with("1 calls were in flight")),
        "{:?}",
        notes(&record)
    );
    let said = import(&of(&[call("Fine", "")]), None, &told("ghz.json")).unwrap_err().to_string();
    assert!(said.contains("`details[0]`: `Fine` is not a gRPC status"), "{said}");
    let whole = fixture("ghz.json");
    let said = import(&whole[..whole.len() - 20], None, &told("ghz.json")).unwrap_err().to_string();
    assert!(said.contains("is cut off: EOF"), "{said}");
}
