//! Lab commands: executed with the arguments of a command line.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use lab::cli::{Arguments, CommandOutcome, run};
use lab::files::{read_record, write_record, write_report};
use lab::scenario::{Scenario, ScenarioOptions};
use lab::topology::ProgramFinder;
use lab_analysis::record::Record;
use lab_analysis::test_support::sample::{self, Dice, Plan};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

/// Output and outcome of a command, or its error text.
fn lab(words: &[&str]) -> Result<(CommandOutcome, String), String> {
    let program = Program::try_parse_from(["lab"].iter().chain(words)).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let ending =
        run(&program.arguments, &ProgramFinder::default(), &mut out).map_err(|error| error.to_string())?;
    Ok((ending, String::from_utf8(out).unwrap()))
}

fn fixture(name: &str) -> String {
    format!("{}/../lab_analysis/tests/it/offline/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn from_a_file_of_another_tool_to_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| text(&folder.path().join(name));
    for (file, out) in [("hey.csv", "a"), ("jmeter.jtl", "b")] {
        let (ending, said) =
            lab(&["import", &fixture(file), "--variant", "echo", "--concurrency", "3", "--out", &of(out)])
                .unwrap();
        assert_eq!(ending, CommandOutcome::Success);
        assert!(said.contains("! import: ") && said.ends_with("report.html\n"), "{said}");
    }
    assert_eq!(
        read_record(&folder.path().join("a/report.json")).unwrap().variants[0].load.concurrency,
        Some(3)
    );
    let (a, b) = (of("a/report.json"), of("b/report.json"));
    let (_, said) = lab(&["compare", &a, &b]).unwrap();
    assert!(
        said.contains("one round does not show how much rounds vary") && said.contains("other-machine"),
        "{said}"
    );
    let (_, said) = lab(&["compare", &a, &b, "--out", &of("c"), "--margin", "10"]).unwrap();
    assert!(said.contains("compare.html") && folder.path().join("c/compare.md").exists());
    let (_, said) = lab(&["report", &a, "--out", &of("again")]).unwrap();
    assert!(said.contains("report.md"), "{said}");
}

#[test]
fn a_page_finds_its_files_and_runs_no_script_but_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write_report(&sample::record(1), folder.path()).unwrap();
    assert!(paths.last().unwrap().ends_with("report.html") && paths.iter().all(|path| path.exists()));
    let page = std::fs::read_to_string(paths.last().unwrap()).unwrap();
    let links = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let files: Vec<&str> = links.filter(|link| !link.starts_with('#')).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files.iter().all(|file| folder.path().join(file).exists()), "{files:?}");
    // What the browser digests is what stands between the tags.
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, script.as_bytes());
    let source = format!("script-src 'sha256-{}'", STANDARD.encode(digest));
    let policy = page.split("Content-Security-Policy\" content=\"").nth(1).unwrap();
    let policy = policy.split('"').next().unwrap();
    assert!(policy.ends_with(&source), "write {source} into html.rs: {policy}");
}

#[test]
fn a_gate_opens_and_closes() {
    let folder = tempfile::tempdir().unwrap();
    let (run_file, base) = (folder.path().join("report.json"), text(&folder.path().join("base.json")));
    let mut record = sample::record(1);
    record.variants[0].counters.insert("instructions".to_owned(), 100.0);
    write_record(&record, &run_file).unwrap();
    let gate = |more: &[&str]| {
        let file = text(&run_file);
        lab(&[&["gate", &file, "--baseline", &base], more].concat())
    };
    assert!(gate(&[]).unwrap_err().contains("cannot read"), "no baseline, no pass");
    assert!(gate(&["--update"]).unwrap().1.contains("checks written"));
    assert_eq!(gate(&[]).unwrap().0, CommandOutcome::Success);
    record.variants[0].counters.insert("instructions".to_owned(), 102.0);
    write_record(&record, &run_file).unwrap();
    let (ending, said) = gate(&[]).unwrap();
    assert_eq!(ending, CommandOutcome::Negative);
    assert!(said.contains("instructions per request of `direct`: is 102, was 100"), "{said}");
    assert!(said.contains("if this change is intended") && said.ends_with("--update\n"), "{said}");
    record.run.counting.insert("compiler".to_owned(), "another".to_owned());
    write_record(&record, &run_file).unwrap();
    let (ending, said) = gate(&[]).unwrap();
    assert!(ending == CommandOutcome::Negative && said.contains("compiler: `another` was `rustc"), "{said}");
    assert!(said.contains("run 13ef7b1 in this environment"), "{said}");
    gate(&["--update"]).unwrap();
    assert_eq!(gate(&[]).unwrap().0, CommandOutcome::Success);
}

#[test]
fn a_gate_tells_of_a_run_that_was_ended_early_and_takes_nothing_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let (run_file, base) = (folder.path().join("report.json"), folder.path().join("base.json"));
    let mut record = sample::record(1);
    record.variants[0].counters.insert("instructions".to_owned(), 102.0);
    record.run.partial = true;
    write_record(&record, &run_file).unwrap();
    let check = r#"{"variant": "direct", "figure": {"kind": "count", "name": "instructions"}, "over": null, "value": 100, "tolerance": 0.01, "may": "fall"}"#;
    let baseline = format!(r#"{{"format": "postern-lab-baseline/1", "commit": null, "checks": [{check}]}}"#);
    std::fs::write(&base, &baseline).unwrap();
    let gate = |more: &[&str]| lab(&[&["gate", &text(&run_file), "--baseline", &text(&base)], more].concat());
    let (ending, said) = gate(&[]).unwrap();
    assert_eq!(ending, CommandOutcome::Negative);
    assert!(said.contains("the run was stopped early") && said.contains("0 of 1 checks passed"), "{said}");
    let said = gate(&["--update"]).unwrap_err();
    assert!(said.contains("cannot make a baseline of a run that was stopped early"), "{said}");
    assert_eq!(std::fs::read_to_string(&base).unwrap(), baseline);
    std::fs::remove_file(&base).unwrap();
    assert!(gate(&["--update"]).is_err() && !base.exists(), "a first one neither");
}

#[test]
fn generators_are_merged_into_one_report() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.json", "b.json"].map(|name| folder.path().join(name));
    for (seed, file) in files.iter().enumerate() {
        write_record(&sample::record(seed as u64), file).unwrap();
    }
    let out = folder.path().join("out");
    lab(&["merge", &text(&files[0]), &text(&files[1]), "--out", &text(&out)]).unwrap();
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("2 generators"));
    assert!(
        lab(&["merge", &text(&files[0]), "--out", "x"]).unwrap_err().contains("2 values required"),
        "one is not several"
    );
}

#[test]
fn a_folder_of_reports_becomes_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let reports = folder.path().join("reports");
    for number in 0..15_u32 {
        let mut record = sample::measured(Vec::new(), 2);
        let plan =
            Plan { name: "counted", typical_us: 500.0, per_s: 20.0, cpu_us: &[("echo", 12.0)], limit: None };
        record.variants = vec![sample::variant(&plan, 2, &mut Dice(u64::from(number)))];
        let instructions = if number < 8 { 20_000.0 } else { 22_000.0 };
        record.variants[0].counters.insert("instructions".to_owned(), instructions + f64::from(number));
        record.run.started_unix_s = Some(1_793_491_200.0 + 86_400.0 * f64::from(number));
        record.run.commit = Some(format!("c0ffee{number:02}"));
        let of = reports.join(format!("{number:02}"));
        std::fs::create_dir_all(&of).unwrap();
        write_record(&record, &of.join("report.json")).unwrap();
    }
    std::fs::write(reports.join("03/report.json"), "{").unwrap();
    std::os::unix::fs::symlink(reports.join("14"), reports.join("latest")).unwrap();
    let out = text(&folder.path().join("out"));
    let (ending, said) = lab(&["history", &text(&reports), "--out", &out]).unwrap();
    assert_eq!(ending, CommandOutcome::Success);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("! left out: 03/report.json: `") && lines[0].contains("not a record"),
        "{said}"
    );
    assert!(lines[1].starts_with("instructions per request of `counted`: worse: × 1.1"), "{said}");
    assert!(lines[1].ends_with("between 2026-11-08 c0ffee07 and 2026-11-09 c0ffee08"), "{said}");
    assert!(said.ends_with("history.html\n") && !said.contains("same run"), "{said}");
    let (_, said) = lab(&["history", &text(&reports), "--margin", "20", "--title", "Counts"]).unwrap();
    assert!(
        said.starts_with("# Counts\n") && said.contains("None of them changed its level by 20"),
        "{said}"
    );
    let said = lab(&["history", &text(&folder.path().join("out"))]).unwrap_err();
    assert!(said.contains("there is no report.json below"), "{said}");
    assert!(lab(&["history", "/nonexistent"]).unwrap_err().contains("cannot read `/nonexistent`"));
}

#[test]
fn a_measured_report_says_how_many_cores_a_load_needs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    write_record(&sample::record(1), &file).unwrap();
    let (file, out) = (text(&file), text(&folder.path().join("plan")));
    let (ending, said) = lab(&["size", &file, "--path", "fused/oidc", "--rate", "30000"]).unwrap();
    assert_eq!(ending, CommandOutcome::Success);
    assert!(said.contains("plan 3 cores") && said.contains("40 % of the cores stay free"), "{said}");
    let all =
        ["size", &file, "--path", "gateway", "--rate", "9", "--headroom", "0", "--price", "1", "--out", &out];
    assert!(lab(&all).unwrap().1.ends_with("size.html\n"));
    assert!(
        std::fs::read_to_string(folder.path().join("plan/size.md")).unwrap().contains("price of a million")
    );
    for (words, why) in [
        (&["size", &file, "--rate", "9"][..], "name one with --path"),
        (&["size", &file, "--path", "nobody", "--rate", "9"], "has no variant `nobody`"),
        (&["size", &file, "--rate", "0"], "must be above 0"),
        (&["size", &file, "--rate", "9", "--headroom", "100"], "must be from 0 to 95"),
        (&["size", &file, "--rate", "9", "--price", "inf"], "not a finite number"),
        (&["size", &file], "--rate"),
    ] {
        let said = lab(words).unwrap_err();
        assert!(said.contains(why), "{said} is not about {why}");
    }
}

#[test]
fn an_audit_ends_with_no_when_something_does_not_follow() {
    let folder = tempfile::tempdir().unwrap();
    let (ending, said) = lab(&["audit"]).unwrap();
    assert_eq!(ending, CommandOutcome::Negative);
    assert!(said.contains("3.11 s, printed 7.24 s"), "{said}");
    let (_, json) = lab(&["audit", "--json"]).unwrap();
    let remarks: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(remarks.as_array().unwrap().len() > 15, "{json}");
    let (_, example) = lab(&["audit", "--example"]).unwrap();
    let path = folder.path().join("tables.json");
    std::fs::write(&path, &example).unwrap();
    assert_eq!(lab(&["audit", &text(&path)]).unwrap().1, said, "the example is the shipped tables");
    std::fs::write(&path, r#"{"format": "postern-lab-tables/1", "title": "t", "provenance": "p"}"#).unwrap();
    assert_eq!(lab(&["audit", &text(&path)]).unwrap().0, CommandOutcome::Success);
}

#[test]
fn the_schema_is_printed() {
    let (_, said) = lab(&["schema"]).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&said).unwrap(), Record::schema());
    let kept =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("record.schema.json")).unwrap();
    assert!(said == kept, "what is printed is what is kept, to the byte");
}

#[test]
fn a_wrong_command_line_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    write_record(&sample::record(1), &file).unwrap();
    let file = text(&file);
    for (words, why) in [
        (&["compare", &file][..], "--a and --b"),
        (&["compare", &file, "--a", "direct", "--b", "nobody"], "has no variant `nobody`"),
        (&["compare", &file, &file, "--margin", "0"], "must be above 0"),
        (&["import", "/nonexistent", "--out", "x"], "cannot read `/nonexistent`"),
        (&["import", &file, "--out", "x"], "unknown format"),
        (&["report", &fixture("hey.csv"), "--out", "x"], "lab import"),
        (&["audit", &file], "postern-lab-tables/1"),
    ] {
        let said = lab(words).unwrap_err();
        assert!(said.contains(why), "{said} is not about {why}");
    }
    std::fs::write(folder.path().join("b"), [0xff, 0xfe, 0]).unwrap();
    let said = lab(&["import", &text(&folder.path().join("b")), "--out", "x"]).unwrap_err();
    assert!(said.contains("not UTF-8 text"), "{said}");
}

#[test]
fn the_examples_of_the_documents_are_understood() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |page: &str| std::fs::read_to_string(docs.join(page)).unwrap();
    let page = read("reference/lab.md");
    let blocks: Vec<&str> =
        page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [check, tables] = blocks[..] else { panic!("two examples: {blocks:?}") };
    serde_json::from_str::<lab_analysis::offline::gate::Check>(check).unwrap();
    let tables =
        lab_analysis::offline::audit::Tables::parse(tables.as_bytes(), "docs/reference/lab.md").unwrap();
    let rules: Vec<&str> =
        lab_analysis::offline::audit::audit(&tables).iter().map(|remark| remark.rule).collect();
    assert_eq!(rules, ["closed-loop-throughput"]);
    let scenario = page.split("### A scenario").nth(1).unwrap().split("```toml\n").nth(1).unwrap();
    let scenario = scenario.split("```").next().unwrap();
    Scenario::from_text(scenario, "docs/reference/lab.md", &ScenarioOptions::default()).unwrap();
    let guide = read("guides/lab-topology.md");
    let scenarios = guide
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|block| block.contains("[[variant]]"));
    for scenario in scenarios {
        Scenario::from_text(scenario, "docs/guides/lab-topology.md", &ScenarioOptions::default()).unwrap();
    }
    let guides = ["run", "topology", "compare", "history", "size", "import", "cluster"]
        .map(|name| read(&format!("guides/lab-{name}.md")));
    let pages = [page, guides.concat()].concat();
    for line in pages.lines().filter(|line| line.starts_with("    postern lab ") && !line.contains("FILE")) {
        let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().skip(2).collect();
        let words: Vec<&str> = words.into_iter().take_while(|word| *word != ">").collect();
        let parsed = Program::try_parse_from(["lab"].iter().chain(&words));
        assert!(parsed.is_ok(), "{line}: {}", parsed.err().map_or(String::new(), |error| error.to_string()));
    }
}
