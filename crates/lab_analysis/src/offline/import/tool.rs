//! Tools: the forms of files that can be imported, and their names on the command line.
//!
//! Owns: the list. Does not own: how a form is recognised, and how it is read.

/// A tool and the form of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Text report of ab.
    Ab,
    /// File of ab for gnuplot, with every request.
    AbTsv,
    /// JSON of Fortio.
    Fortio,
    /// Log of Gatling, as text, with every request.
    Gatling,
    /// Figures of Gatling's report, as a script or JSON.
    GatlingStats,
    /// JSON of ghz, with every request.
    Ghz,
    /// Text report of hey.
    Hey,
    /// CSV of hey, with every request.
    HeyCsv,
    /// JSON lines of k6, with every request.
    K6,
    /// Summary of k6.
    K6Summary,
    /// CSV of Locust with the totals.
    Locust,
    /// CSV of Locust with the totals of each second.
    LocustHistory,
    /// JSON of Nighthawk.
    Nighthawk,
    /// Text report of wrk.
    Wrk,
    /// Text report of h2load.
    H2load,
    /// Log of h2load, with every request.
    H2loadLog,
    /// JSON of oha.
    Oha,
    /// Result file of `JMeter` in CSV, with every request.
    Jtl,
    /// Result file of `JMeter` in XML, with every request.
    JtlXml,
    /// JSON lines of vegeta, with every request.
    Vegeta,
    /// CSV of vegeta, with every request.
    VegetaCsv,
    /// JSON report of vegeta.
    VegetaReport,
}

impl Tool {
    /// All tools and forms.
    pub const ALL: [Self; 22] = [
        Self::Ab,
        Self::AbTsv,
        Self::Fortio,
        Self::Gatling,
        Self::GatlingStats,
        Self::Ghz,
        Self::H2load,
        Self::H2loadLog,
        Self::Hey,
        Self::HeyCsv,
        Self::Jtl,
        Self::JtlXml,
        Self::K6,
        Self::K6Summary,
        Self::Locust,
        Self::LocustHistory,
        Self::Nighthawk,
        Self::Oha,
        Self::Vegeta,
        Self::VegetaCsv,
        Self::VegetaReport,
        Self::Wrk,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ab => "ab",
            Self::AbTsv => "ab-tsv",
            Self::Fortio => "fortio",
            Self::Gatling => "gatling",
            Self::GatlingStats => "gatling-stats",
            Self::Ghz => "ghz",
            Self::Hey => "hey",
            Self::HeyCsv => "hey-csv",
            Self::K6 => "k6",
            Self::K6Summary => "k6-summary",
            Self::Locust => "locust",
            Self::LocustHistory => "locust-history",
            Self::Nighthawk => "nighthawk",
            Self::Wrk => "wrk",
            Self::H2load => "h2load",
            Self::H2loadLog => "h2load-log",
            Self::Oha => "oha",
            Self::Jtl => "jtl",
            Self::JtlXml => "jtl-xml",
            Self::Vegeta => "vegeta",
            Self::VegetaCsv => "vegeta-csv",
            Self::VegetaReport => "vegeta-report",
        }
    }

    /// The tool and form with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The option of the tool that writes this form, and what it has, for the help.
    pub fn form(self) -> &'static str {
        match self {
            Self::Ab => "ab text report",
            Self::AbTsv => "ab -g: every request, without its status",
            Self::Fortio => "fortio load -json",
            Self::Gatling => "simulation.log of Gatling up to 3.12: every request",
            Self::GatlingStats => "js/stats.js or js/global_stats.json of Gatling's report",
            Self::Ghz => "ghz -O json: every request",
            Self::Hey => "hey text report",
            Self::HeyCsv => "hey -o csv: every request",
            Self::K6 => "k6 run --out json: every request",
            Self::K6Summary => "k6 run --summary-export",
            Self::Locust => "locust --csv NAME: NAME_stats.csv",
            Self::LocustHistory => "locust --csv NAME: NAME_stats_history.csv",
            Self::Nighthawk => {
                "nighthawk_client --output-format json (by its schema; not tried with a real file)"
            }
            Self::Wrk => "wrk, with or without --latency",
            Self::H2load => "h2load text report",
            Self::H2loadLog => "h2load --log-file: every request",
            Self::Oha => "oha --output-format json",
            Self::Jtl => "JMeter result file in CSV: every request",
            Self::JtlXml => "JMeter result file in XML: every request",
            Self::Vegeta => "vegeta encode --to json: every request",
            Self::VegetaCsv => "vegeta encode --to csv: every request",
            Self::VegetaReport => "vegeta report -type json",
        }
    }
}
