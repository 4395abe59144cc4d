//! Plans: cores and prices from measured reports, and what the reports do not carry.

use lab_analysis::offline::render::html;
use lab_analysis::offline::size::{Constancy, MeasuredReport, SizeTerms, Sizing, size};
use lab_analysis::record::{Record, Variant};
use lab_analysis::test_support::sample::{self, Dice, Plan};

const TERMS: SizeTerms<'static> = SizeTerms { rate_per_s: 1000.0, path: None, headroom: 0.4, price: None };

/// A variant under a rate, whose gateway needs this CPU per request.
fn variant(name: &str, per_s: f64, cost_us: f64, rounds: u32) -> Variant {
    let cpu_us = [("echo", 120.0), ("postern", cost_us)];
    let plan = Plan { name, typical_us: 500.0, per_s, cpu_us: &cpu_us, limit: None };
    let mut variant = sample::variant(&plan, rounds, &mut Dice(7));
    // A run labels each variant with its load.
    variant.labels.insert("load".to_owned(), name.rsplit('/').next().unwrap().to_owned());
    variant
}

fn report(variants: Vec<Variant>) -> Record {
    sample::measured(variants, 2)
}

fn plan(records: &[&Record], terms: &SizeTerms<'_>) -> Result<Sizing, String> {
    let files = ["a.json", "b.json", "c.json"];
    let reports: Vec<MeasuredReport<'_>> =
        files.iter().zip(records).map(|(file, record)| MeasuredReport { file, record }).collect();
    size(&reports, terms).map_err(|error| error.to_string())
}

fn markdown(record: &Record, terms: &SizeTerms<'_>) -> String {
    let reports = [MeasuredReport { file: "a.json", record }];
    size(&reports, terms).unwrap().sheet(&reports).markdown()
}

#[test]
fn cores_are_rate_times_cost_and_leave_the_headroom_free() {
    let record = report(vec![variant("fused", 200.0, 340.0, 5)]);
    let plan = plan(&[&record], &TERMS).unwrap();
    assert!((plan.cpu_us.point - 340.0).abs() < 8.0, "{:?}", plan.cpu_us);
    let (busy, cores) = (plan.busy_cores(), plan.cores());
    assert!((busy.point - plan.cpu_us.point / 1000.0).abs() < 1e-9);
    assert!((cores.point - busy.point / 0.6).abs() < 1e-9 && (cores.high - busy.high / 0.6).abs() < 1e-9);
    assert!(cores.low <= cores.point && cores.point <= cores.high && cores.low > 0.5);
    assert!((plan.whole_cores() - 1.0).abs() < 1e-9);
    assert!(plan.loads.len() == 1 && plan.loads[0].is_interval && plan.constancy == Constancy::NotChecked);
    let counted = |name: &str| plan.components.iter().find(|one| one.name == name).unwrap().is_counted;
    assert!(counted("postern") && !counted("echo"), "the service is not part of the plan");
    let text = markdown(&record, &SizeTerms { rate_per_s: 10_000.0, ..TERMS });
    assert!(text.contains("plan 6 cores") && text.contains("with 95 % or more"), "{text}");
    assert!(text.contains("Not checked: the reports have this path at one rate only"), "{text}");
    assert!(text.contains("times the highest measured one, 200 requests/s"), "{text}");
    assert!(text.contains("The machine of the report has 2 cores, and the plan has 6 cores"), "{text}");
    assert!(!text.contains("price"), "{text}");
}

#[test]
fn a_price_is_that_of_the_cores_that_are_provided() {
    let record = report(vec![variant("fused", 200.0, 360.0, 5)]);
    let plan = plan(&[&record], &SizeTerms { price: Some(0.6), headroom: 0.0, ..TERMS }).unwrap();
    // 360 s of CPU for a million requests are a tenth of a core for an hour.
    let million = plan.price_of_million().unwrap();
    assert!((million.point - plan.cpu_us.point / 3600.0 * 0.6).abs() < 1e-12);
    assert!((million.point - 0.06).abs() < 0.003, "{million:?}");
    let half = SizeTerms { price: Some(0.6), headroom: 0.5, ..TERMS };
    let text = markdown(&record, &half);
    assert!(
        text.contains("| price of a million requests, by their share of the cores to provide | 0.1"),
        "{text}"
    );
    // The month and the million agree: 2 628 million requests for 438.
    assert!(text.contains("| price of a million requests at this rate, on 1 core | 0.167 |"), "{text}");
    assert!(text.contains("| price of 1 core for a month, at 0.600 for a core and hour | 438 |"), "{text}");
}

#[test]
fn a_cost_that_is_the_same_at_every_rate_is_said_to_be_checked() {
    let rates = [100.0, 200.0, 400.0];
    let variants = rates.map(|rate| variant(&format!("fused/oidc/{rate}"), rate, 340.0, 5));
    let record = report(variants.to_vec());
    let exact = plan(&[&record], &SizeTerms { path: Some("fused/oidc/200"), ..TERMS }).unwrap();
    let Constancy::Constant { rates, factor } = exact.constancy else { panic!("{:?}", exact.constancy) };
    assert!((rates[0] - 100.0).abs() < 1.0 && (rates[1] - 400.0).abs() < 1.0 && factor < 1.1);
    let base: Vec<&str> =
        exact.loads.iter().filter(|load| load.is_base).map(|load| load.variant.as_str()).collect();
    assert_eq!((base, exact.loads.len()), (vec!["fused/oidc/200"], 3), "the others are the check");
    let text = markdown(&record, &SizeTerms { path: Some("fused/oidc"), ..TERMS });
    assert!(text.contains("Checked: from 100 to 400 requests/s the highest cost is × 1.0"), "{text}");
}

#[test]
fn a_cost_that_depends_on_the_rate_widens_the_range() {
    let costs = [(100.0, 700.0), (400.0, 300.0)];
    let variants = costs.map(|(rate, cost)| variant(&format!("fused/oidc/{rate}"), rate, cost, 5));
    let record = report(variants.to_vec());
    let exact = plan(&[&record], &SizeTerms { path: Some("fused/oidc/400"), ..TERMS }).unwrap();
    assert!(matches!(exact.constancy, Constancy::Varies { factor, .. } if factor > 2.0));
    assert!((exact.cpu_us.point - 300.0).abs() < 8.0, "the named variant: {:?}", exact.cpu_us);
    assert!(exact.cpu_us.high > 680.0 && exact.cpu_us.low < 305.0, "every rate: {:?}", exact.cpu_us);
    let all = plan(&[&record], &SizeTerms { path: Some("fused/oidc"), ..TERMS }).unwrap();
    assert!((all.cpu_us.point - 700.0).abs() < 15.0, "the most expensive one: {:?}", all.cpu_us);
    let text = markdown(&record, &SizeTerms { path: Some("fused/oidc"), ..TERMS });
    assert!(text.contains("It does not hold: from 100 to 400 requests/s"), "{text}");
    assert!(text.contains("it covers every measured rate"), "{text}");
}

#[test]
fn several_reports_are_one_plan_whose_range_covers_them() {
    let records = [340.0, 350.0, 420.0].map(|cost| report(vec![variant("fused", 200.0, cost, 5)]));
    let all: Vec<&Record> = records.iter().collect();
    let plan = plan(&all, &TERMS).unwrap();
    assert!((plan.cpu_us.point - 350.0).abs() < 8.0, "the median of the reports: {:?}", plan.cpu_us);
    assert!(plan.cpu_us.low < 345.0 && plan.cpu_us.high > 412.0, "{:?}", plan.cpu_us);
}

#[test]
fn a_plan_far_from_what_was_measured_says_so_in_its_answer() {
    let record = report(vec![
        variant("fused/oidc/5000", 5_000.0, 40.0, 5),
        variant("fused/oidc/9000", 9_000.0, 40.0, 5),
    ]);
    let terms = |rate_per_s| SizeTerms { rate_per_s, path: Some("fused/oidc/5000"), ..TERMS };
    let answer = |rate_per_s| {
        let text = markdown(&record, &terms(rate_per_s));
        text.split("\n## ").find(|section| section.starts_with("Answer")).unwrap().to_owned()
    };
    let low = answer(50.0);
    assert!(low.contains("The lowest measured rate, 5000 requests/s, is 100 times the planned one"), "{low}");
    assert!(answer(90_000.0).contains("is 10.0 times the highest measured one"), "{}", answer(90_000.0));
    for near in [4_500.0, 7_000.0, 10_000.0] {
        assert!(!answer(near).contains("measured"), "{}", answer(near));
    }
}

#[test]
fn reports_of_several_builds_are_named() {
    let (mut a, mut b) =
        (report(vec![variant("fused", 200.0, 40.0, 5)]), report(vec![variant("fused", 200.0, 400.0, 5)]));
    (a.run.commit, b.run.commit) = (Some("1111111".to_owned()), Some("2222222".to_owned()));
    let reports = [("a.json", &a), ("b.json", &b)].map(|(file, record)| MeasuredReport { file, record });
    let text = size(&reports, &TERMS).unwrap().sheet(&reports).markdown();
    assert!(text.contains("The reports are of 2 commits (1111111, 2222222)."), "{text}");
}

#[test]
fn few_rounds_have_a_range_and_no_interval() {
    let record = report(vec![variant("fused", 200.0, 340.0, 3)]);
    assert!(!plan(&[&record], &TERMS).unwrap().loads[0].is_interval);
    let text = markdown(&record, &TERMS);
    assert!(text.contains("the range is that of the rounds; an interval needs 5 of them"), "{text}");
    assert!(text.contains("few-iterations"), "the finding is shown: {text}");
}

#[test]
fn what_a_report_does_not_carry_is_refused_with_the_reason() {
    let refused =
        |records: &[&Record], path: Option<&str>| plan(records, &SizeTerms { path, ..TERMS }).unwrap_err();
    let two = report(vec![variant("fused/oidc", 200.0, 340.0, 5), variant("direct/oidc", 200.0, 0.0, 5)]);
    let said = refused(&[&two], None);
    assert!(said.contains("`a.json` has several paths: name one with --path"), "{said}");
    let said = refused(&[&two], Some("nobody"));
    assert!(
        said.contains("has no variant `nobody`") && said.contains("`fused/oidc`, `direct/oidc`"),
        "{said}"
    );

    let mut without = report(vec![variant("fused", 200.0, 340.0, 5)]);
    without.variants[0].iterations.iter_mut().for_each(|iteration| iteration.components.clear());
    let said = refused(&[&without], None);
    assert!(
        said.contains("does not say what a request costs: no round of `fused` has CPU per request"),
        "{said}"
    );

    let mut one_less = report(vec![variant("fused", 200.0, 340.0, 5)]);
    one_less.variants[0].iterations[2].components.clear();
    let said = refused(&[&one_less], None);
    assert!(said.contains("round 3 of `fused` has no CPU per request of the path"), "{said}");

    let fused = report(vec![variant("fused", 200.0, 340.0, 5)]);
    let mut large = fused.clone();
    large.run.machines[0].cores = 64;
    let said = refused(&[&fused, &large], None);
    assert!(said.contains("different machines"), "{said}");
    let mut other = fused.clone();
    other.variants[0].load.tokens = Some(1);
    let said = refused(&[&fused, &other], None);
    assert!(said.contains("are different paths"), "{said}");

    let mut modes =
        report(vec![variant("fused/oidc", 200.0, 340.0, 5), variant("fused/oauth", 200.0, 340.0, 5)]);
    modes.variants[1].labels.insert("token".to_owned(), "oauth".to_owned());
    let said = refused(&[&modes], Some("fused"));
    assert!(said.contains("`fused` is not one path") && said.contains("`fused/oauth`"), "{said}");
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let record = report(vec![variant("fused", 200.0, 340.0, 5)]);
    let reports = [MeasuredReport { file: "a.json", record: &record }];
    let sheet = size(&reports, &SizeTerms { price: Some(0.04), ..TERMS }).unwrap().sheet(&reports);
    let page = html(&sheet);
    let (content, script) = page.split_once("<script>").expect("the page's own");
    assert!(!script.contains("<script"));
    for foreign in ["http:", "https:", "src=", "NaN"] {
        assert!(!content.contains(foreign), "{foreign}");
    }
    assert!(page.contains("<svg") && page.contains("<h2>Answer</h2>"));
    let text = sheet.markdown();
    for word in ["Some(", "None", "NaN", "inf "] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}
