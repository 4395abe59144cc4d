//! Result files of `JMeter`.

use lab_analysis::offline::import::{Tool, import, recognise};
use lab_analysis::offline::report::sheet;
use lab_analysis::record::{Arrivals, Origin, Outcome};

use super::{endings, fixture, histogram_is_near, iteration, read, stated, told};

#[test]
fn jmeter_files_have_the_dashboards_percentiles() {
    let printed: serde_json::Value = serde_json::from_str(&fixture("jmeter.printed.json")).unwrap();
    let total = &printed["Total"];
    for name in ["jmeter.jtl", "jmeter-xml.jtl"] {
        let record = read(name);
        let of = iteration(&record);
        for (key, share) in
            [("medianResTime", 0.5), ("pct1ResTime", 0.9), ("pct2ResTime", 0.95), ("pct3ResTime", 0.99)]
        {
            let ms = total[key].as_f64().unwrap();
            assert!((stated(of, share) / 1e3 - ms).abs() < 1e-6, "{name} {key}: {} {ms}", stated(of, share));
            histogram_is_near(of, share);
        }
        let of_stated = of.stated.as_ref().unwrap();
        assert!((of_stated.mean_us.unwrap() / 1e3 - total["meanResTime"].as_f64().unwrap()).abs() < 1e-6);
        assert!((of_stated.max_us.unwrap() / 1e3 - total["maxResTime"].as_f64().unwrap()).abs() < 1e-6);
        assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Refused)), (116, 4), "{name}");
        // The dashboard computes the rate from the first start to the last end.
        assert!(
            (of_stated.per_s.unwrap() / total["throughput"].as_f64().unwrap() - 1.0).abs() < 1e-6,
            "{name}"
        );
    }
}

#[test]
fn a_jmeter_sample_within_a_sample_is_not_counted_again() {
    let xml = r#"<?xml version="1.0" encoding="UTF-8"?><testResults version="1.2">
        <httpSample t="30" ts="1000" s="true" rc="200"><httpSample t="10" ts="1000" s="true" rc="302"/><httpSample t="20" ts="1010" s="true" rc="200"/></httpSample>
        <httpSample t="9" ts="1030" s="false" rc="Non HTTP response code: java.net.SocketException"/>
        </testResults>"#;
    let record = import(xml, None, &told("x.jtl")).unwrap();
    let of = iteration(&record);
    assert_eq!((of.count(Outcome::Ok), of.count(Outcome::Failed)), (1, 1));
    let cut = import(&xml[..xml.len() - 20], None, &told("x.jtl")).unwrap_err().to_string();
    assert!(cut.contains("truncated"), "{cut}");
}

#[test]
fn a_jmeter_transaction_is_not_a_request_beside_those_that_it_holds() {
    let head = "timeStamp,elapsed,label,responseCode,responseMessage,success\n";
    let rows = "1000,30,a,200,OK,true\n1030,20,b,200,OK,true\n";
    let controller =
        "1000,50,both,,\"Number of samples in transaction : 2, number of failing samples : 0\",true\n";
    let read = |content: &str| {
        let record = import(content, None, &told("x.jtl")).unwrap();
        let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
        (iteration(&record).count(Outcome::Ok), notes.join("; "))
    };
    let (count, notes) = read(&format!("{head}{rows}{controller}"));
    assert!(count == 2 && notes.contains("1 rows are of Transaction Controllers"), "{count} {notes}");
    // "Generate parent sample": there are no other rows.
    let (count, notes) = read(&format!("{head}{controller}{controller}"));
    assert!(count == 2 && notes.contains("represents all of its samples"), "{count} {notes}");
    let xml = r#"<testResults version="1.2">
        <sample t="50" ts="1000" s="true" rc="" rm="Number of samples in transaction : 2, number of failing samples : 0"><httpSample t="30" ts="1000" s="true" rc="200"/></sample>
        <httpSample t="9" ts="1060" s="true" rc="200"/>
        <sample t="50" ts="1070" s="true" rc="" rm="Number of samples in transaction : 1, number of failing samples : 0"/>
        </testResults>"#;
    assert_eq!(read(xml).0, 2, "one holds its samples within it, the other is told by what it holds");
}

/// Rows say whose they are by thread and time: controllers within controllers count every sample again,
/// and a plan may have controllers of both kinds.
#[test]
fn a_jmeter_transaction_is_told_by_its_thread_and_its_time() {
    let head = "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success\n";
    let sample = |at: u32, ms: u32, thread: &str| format!("{at},{ms},a,200,OK,{thread},true\n");
    let controller = |at: u32, ms: u32, samples: u32, thread: &str| {
        format!(
            "{at},{ms},all,,\"Number of samples in transaction : {samples}, number of failing samples : 0\",{thread},true\n"
        )
    };
    let read = |rows: &[String]| {
        let record = import(&format!("{head}{}", rows.concat()), None, &told("x.jtl")).unwrap();
        let Origin::Import { notes, .. } = &record.run.origin else { panic!("{:?}", record.run.origin) };
        assert_eq!(record.variants[0].load.arrivals, Arrivals::Unknown, "threads may wait");
        (iteration(&record).count(Outcome::Ok), notes.join("; "))
    };
    // Four samples, in two controllers of a third.
    let mut nested: Vec<String> = (0..4).map(|at| sample(1000 + at * 10, 10, "t 1")).collect();
    nested.extend([
        controller(1000, 20, 2, "t 1"),
        controller(1020, 20, 2, "t 1"),
        controller(1000, 40, 4, "t 1"),
    ]);
    let (count, notes) = read(&nested);
    assert!(count == 4 && notes.contains("3 rows are of Transaction Controllers"), "{count} {notes}");
    assert!(!notes.contains("represents all"), "{notes}");
    // Beside them a thread whose samples have no rows, at the same time.
    nested.extend([controller(1000, 30, 3, "t 2"), controller(1030, 30, 3, "t 2")]);
    let (count, notes) = read(&nested);
    assert!(count == 6 && notes.contains("3 rows are of Transaction Controllers"), "{count} {notes}");
    assert!(notes.contains("represents all of its samples"), "{notes}");
}

/// The same four samples with every timestamp format and every delimiter. The last one ends 2.5 s
/// after the first began.
#[test]
fn jmeters_moments_may_be_dates_and_its_columns_stand_between_tabs() {
    let moments: [(&str, [&str; 4]); 5] = [
        ("milliseconds", ["1795392970000", "1795392970500", "1795392971000", "1795392972000"]),
        (
            "slashes",
            [
                "2026/11/23 00:16:10.000",
                "2026/11/23 00:16:10.500",
                "2026/11/23 00:16:11.000",
                "2026/11/23 00:16:12.000",
            ],
        ),
        (
            "hyphens",
            [
                "2026-11-23 00:16:10.000",
                "2026-11-23 00:16:10.500",
                "2026-11-23 00:16:11.000",
                "2026-11-23 00:16:12.000",
            ],
        ),
        (
            "over midnight",
            [
                "2026/12/31 23:59:58.000",
                "2026/12/31 23:59:58.500",
                "2026/12/31 23:59:59.000",
                "2027/01/01 00:00:00.000",
            ],
        ),
        (
            "ISO 8601",
            [
                "2026-11-23T00:16:10.000Z",
                "2026-11-23T00:16:10.500Z",
                "2026-11-23T00:16:11.000Z",
                "2026-11-23T00:16:12.000Z",
            ],
        ),
    ];
    for (name, moments) in moments {
        for delimiter in [",", "\t", ";", "|"] {
            let rows = moments.iter().zip([100, 200, 300, 500]);
            let row = |(at, ms): (&&str, i32)| {
                [at, &*ms.to_string(), "get", "200", "OK", "true", "3"].join(delimiter)
            };
            let head = "timeStamp elapsed label responseCode responseMessage success allThreads"
                .replace(' ', delimiter);
            let content = std::iter::once(head).chain(rows.map(row)).collect::<Vec<_>>().join("\n");
            assert_eq!(recognise(&content), Some(Tool::Jtl), "{content}");
            let record =
                import(&content, None, &told("x.jtl")).unwrap_or_else(|error| panic!("{name}: {error}"));
            let of = iteration(&record);
            assert!((of.seconds - 2.5).abs() < 1e-6, "{name} {delimiter:?}: {}", of.seconds);
            assert_eq!((of.count(Outcome::Ok), record.variants[0].load.concurrency), (4, Some(3)), "{name}");
            assert!((of.stated.as_ref().unwrap().mean_us.unwrap() - 275_000.0).abs() < 1e-6, "{name}");
        }
    }
    // Timestamps in whole seconds are reported in a note.
    for moment in ["2026/11/23 00:16:10", "2026-11-23 00:16:10", "11/23/26 00:16:10"] {
        let content = format!("timeStamp,elapsed,responseCode,success\n{moment},100,200,true\n");
        let record = import(&content, None, &told("x.jtl")).unwrap();
        let Origin::Import { notes, .. } = &record.run.origin else { panic!("it is an import") };
        assert!(notes.iter().any(|note| note.contains("whole seconds")), "{moment}: {notes:?}");
    }
    let refused =
        import("timeStamp,elapsed,responseCode,success\nyesterday,1,200,true\n", None, &told("x.jtl"));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("line 2: `yesterday` is neither a number of milliseconds nor a date"),
        "{refused}"
    );
}

#[test]
fn an_answer_that_an_assertion_refused_has_failed_and_says_why() {
    let words = "Test failed: text expected to contain /ready/";
    let csv = format!(
        "timeStamp,elapsed,responseCode,responseMessage,success,failureMessage\n\
         1000,30,200,OK,true,\n1030,20,200,OK,false,{words}\n1050,10,200,OK,false,another\n1060,5,404,Not Found,true,\n\
         1065,7,503,Service Unavailable,false,\n\
         1072,9,Non HTTP response code: java.net.SocketTimeoutException,Non HTTP response message: Read timed out,false,\n\
         1081,9,Non HTTP response code: org.apache.http.conn.HttpHostConnectException,Non HTTP response message: Connection refused,false,\n"
    );
    let xml = format!(
        r#"<?xml version="1.0"?><testResults version="1.2">
        <httpSample t="30" ts="1000" s="true" rc="200" rm="OK"/>
        <httpSample t="20" ts="1030" s="false" rc="200" rm="OK"><assertionResult><name>ready</name><failure>true</failure><error>false</error><failureMessage>{words}</failureMessage></assertionResult></httpSample>
        <httpSample t="10" ts="1050" s="false" rc="200" rm="OK"><assertionResult><name>a</name><failureMessage>another &lt;1&gt;</failureMessage></assertionResult></httpSample>
        <httpSample t="5" ts="1060" s="true" rc="404" rm="Not Found"/>
        <httpSample t="7" ts="1065" s="false" rc="503" rm="Service Unavailable"/>
        <httpSample t="9" ts="1072" s="false" rc="Non HTTP response code: java.net.SocketTimeoutException" rm="Non HTTP response message: Read timed out"/>
        <httpSample t="9" ts="1081" s="false" rc="Non HTTP response code: org.apache.http.conn.HttpHostConnectException" rm="Non HTTP response message: Connection refused"/>
        </testResults>"#
    );
    for content in [csv, xml] {
        let seen = endings(&content, "x.jtl");
        let count =
            |outcome| seen.iter().filter(|ending| ending.0 == outcome).map(|ending| ending.3).sum::<u64>();
        assert_eq!(
            (count(Outcome::Ok), count(Outcome::Refused), count(Outcome::Failed)),
            (2, 1, 4),
            "{seen:?}"
        );
        assert!(
            seen.contains(&(Outcome::Failed, None, "assertion failed on 200".into(), 2, words.into())),
            "{seen:?}"
        );
        assert!(
            seen.contains(&(Outcome::Refused, Some(503), String::new(), 1, "Service Unavailable".into())),
            "{seen:?}"
        );
        assert!(
            seen.iter().any(|ending| ending.2 == "timeout" && ending.4.contains("Read timed out")),
            "{seen:?}"
        );
        assert!(seen.iter().any(|ending| ending.2 == "connect" && ending.4.contains("refused")), "{seen:?}");
        assert!(
            seen.iter().any(|ending| ending.0 == Outcome::Ok && ending.4 == "status 404, which was expected")
        );
        let text = sheet(&import(&content, None, &told("x.jtl")).unwrap()).markdown();
        assert!(text.contains("| assertion failed on 200 | 2 |"), "{text}");
        assert!(!text.contains("failed, status not known"), "{text}");
    }
}
