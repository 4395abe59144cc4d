//! Running topology: starts, checks and ends the components of a topology.
//!
//! Owns: the order of start and end, the folders with configurations and logs, and the check of the
//! whole path before load starts. Does not own: a single process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab_load::Interrupt;
use lab_load::cgroup::{ComponentGroup, Limits};
use lab_load::fetch::BlockingClient;
use lab_load::load::{Protocol, Target, Trust};
use lab_load::provider::ProviderDescription;

use super::account::Account;
use super::description::{Component, Kind, Metrics, Program, Ready};
use super::names::{REPETITION_NAME, file_name, folder_name, port_name};
use super::ports::PortClaims;
use super::process::{DEFAULT_STOP_TIMEOUT, Launch, Process};
use super::signer::{self, Signer};
use super::template::{self, Values};
use super::{Topology, TopologyError, provider, ready, tokens};
use crate::topology::component;
use crate::topology::component::{ComponentFiles, ComponentInfo, Readiness, RootPid, RunningComponent};
use crate::topology::workdir::{TopologyOverrides, Workdir, failed, make_folder, run_values, write_private};

/// Factor for the timeouts (readiness and end) of a program that runs under a tool.
const TOOL_SLOWDOWN: u32 = 20;
/// Pause between two readiness probes of a program under a tool: the work of responding is counted.
const TOOL_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait until a request passes the whole topology.
const PATH_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two attempts, and longest wait for one response.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two checks of whether a one-time program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Largest response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 22;

/// A tool that executes the program of one component more slowly, such as a profiler.
#[derive(Debug, Clone)]
pub(crate) struct WrapperTool {
    /// Component whose program runs under the tool.
    pub(crate) component: String,
    /// Program of the tool.
    pub(crate) program: String,
    /// Arguments of the tool, before the path of the program.
    pub(crate) arguments: Vec<String>,
}

/// A running topology. Its components are ended when it is dropped.
pub struct Running {
    pub(super) topology: Topology,
    pub(super) components: Vec<RunningComponent>,
    pub(super) values: Values,
    signer: Option<Arc<Signer>>,
    pub(super) interrupt: Interrupt,
    wrapper: Option<WrapperTool>,
    /// `true` if the checked response reported phases in `Server-Timing`.
    reports_phases: bool,
    _ports: PortClaims,
}

impl Running {
    /// Starts the components in order and waits until each is ready. If one fails, the running ones
    /// are ended. `label` is the name of the run's folder.
    ///
    /// # Errors
    /// A program, port, limit or file is not available, a component does not become ready, or the
    /// run is interrupted.
    pub fn start(
        topology: &Topology,
        change: &TopologyOverrides,
        place: &Workdir,
        label: &str,
    ) -> Result<Self, TopologyError> {
        Self::start_with_tool(topology, change, place, label, None)
    }

    /// Like [`Running::start`], with the program of one component executed by a tool.
    pub(crate) fn start_with_tool(
        topology: &Topology,
        change: &TopologyOverrides,
        place: &Workdir,
        label: &str,
        wrapper: Option<WrapperTool>,
    ) -> Result<Self, TopologyError> {
        let folder = place.folder().join(label);
        // Data of an earlier run, such as a database, must not be used by this one.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &folder)(error));
            }
            _ => make_folder(&folder)?,
        }
        let mut ports = PortClaims::default();
        let mut values = run_values(topology, change, place, &folder, &mut ports)?;
        let signer = topology.needs_signer().then(|| place.signer(&mut values)).transpose()?;
        let mut running = Self {
            topology: topology.clone(),
            components: Vec::new(),
            values,
            signer,
            interrupt: place.interrupt().clone(),
            wrapper,
            reports_phases: false,
            _ports: ports,
        };
        for name in change.limits.keys().chain(change.open_files.keys()).chain(change.cores.keys()) {
            if !matches!(topology.component(name).map(|component| &component.kind), Some(Kind::Program(_))) {
                let message = format!("the topology starts no component `{name}`");
                return Err(TopologyError::invalid_value(&topology.name, "limits", message));
            }
        }
        running.check_cluster_address()?;
        for component in &topology.components {
            if place.interrupt().is_set() {
                return Err(TopologyError::Interrupted);
            }
            match &component.kind {
                Kind::Remote { .. } => {
                    let about = running.remote(component)?;
                    running.components.push(RunningComponent::elsewhere(about));
                }
                Kind::Program(program) => {
                    running.launch(component, program, change, place, &folder)?;
                    running.fill_cluster(&component.name, place)?;
                }
            }
        }
        Ok(running)
    }

    /// The topology that runs.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Replaces the names in a text by their values in this run.
    pub fn fill(&self, text: &str) -> Result<String, TopologyError> {
        template::fill(text, &self.values).map_err(|unknown| {
            TopologyError::invalid_value(&self.topology.name, text, unknown.describe(&self.values))
        })
    }

    /// The provider that flows use; `None` if the topology describes none.
    pub(crate) fn provider(&self) -> Result<Option<ProviderDescription>, TopologyError> {
        let Some(table) = &self.topology.provider else { return Ok(None) };
        let described = provider::filled(table, &self.values);
        described
            .map(Some)
            .map_err(|message| TopologyError::invalid_value(&self.topology.name, "provider", message))
    }

    /// Process IDs of the components that were started here, by name.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let ids = self
            .components
            .iter()
            .filter_map(|live| Some((live.info.name.clone(), live.info.root.as_ref()?.pid()?)));
        ids.collect()
    }

    /// What the samplers need to know about each component.
    pub(crate) fn component_infos(&self) -> Vec<ComponentInfo> {
        self.components.iter().map(|live| live.info.clone()).collect()
    }

    /// The component whose phases the checked responses reported.
    pub(crate) fn server_timing_component(&self) -> Option<&str> {
        self.topology.entry.server_timing_of.as_deref().filter(|_| self.reports_phases)
    }

    /// Targets where load enters: one, or several that share the load. `path` replaces the path of
    /// the topology's URLs.
    pub fn targets(&self, path: Option<&str>) -> Result<Vec<Target>, TopologyError> {
        let target = |url: &String| self.target(url, path, self.topology.entry.protocol);
        self.topology.entry.urls.iter().map(target).collect()
    }

    /// The first target where load enters, with another protocol. `path` replaces the path of its
    /// URL.
    pub(crate) fn entry_target(
        &self,
        path: Option<&str>,
        protocol: Protocol,
    ) -> Result<Target, TopologyError> {
        self.target(&self.topology.entry.urls[0], path, protocol)
    }

    /// Certificates that are accepted where load enters, and by flows.
    pub(crate) fn trust(&self) -> Result<Option<Trust>, TopologyError> {
        let load = &self.topology.entry;
        Ok(match &load.ca {
            _ if load.insecure => Some(Trust::AnyCertificate),
            Some(file) => Some(Trust::CertificateFile(PathBuf::from(self.fill(file)?))),
            None => None,
        })
    }

    /// Creates a target with the connection settings of the load entry.
    pub(super) fn target(
        &self,
        url: &str,
        path: Option<&str>,
        protocol: Protocol,
    ) -> Result<Target, TopologyError> {
        let load = &self.topology.entry;
        let trust = self.trust()?;
        let mut url = self.fill(url)?;
        if let Some(path) = path {
            let authority = url.find("://").map_or(0, |at| at + 3);
            url.truncate(url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at));
            url.push_str(path);
        }
        let connect = load.connect.as_deref().map(|connect| self.fill(connect)).transpose()?;
        Target::new(&url, protocol, trust.as_ref(), connect.as_deref(), None)
            .map_err(|error| TopologyError::invalid_value(&self.topology.name, "load", error.to_string()))
    }

    /// Obtains `count` tokens of a mode; none if the topology has no tokens or no mode is given.
    pub fn tokens(&self, mode: Option<&str>, count: usize) -> Result<Vec<String>, TopologyError> {
        let (Some(tokens), Some(mode)) = (&self.topology.tokens, mode) else { return Ok(Vec::new()) };
        let Some(how) = tokens.mode.get(mode) else {
            let message =
                format!("unknown token mode `{mode}`; available: {}", self.topology.modes().join(", "));
            return Err(TopologyError::invalid_value(&self.topology.name, "tokens", message));
        };
        tokens::get(tokens, how, count, &self.values, self.signer.as_deref(), &self.interrupt)
    }

    /// Checks that a request with a token passes at every load entry. If the topology is guarded,
    /// also checks that a request without a token is refused.
    ///
    /// # Errors
    /// A response is not the expected one, or a component has ended.
    pub fn check(&mut self, token: Option<&str>) -> Result<(), TopologyError> {
        for url in self.topology.entry.urls.clone() {
            let target = self.target(&url, None, Protocol::Http1)?;
            self.check_entry(target, token)?;
        }
        Ok(())
    }

    fn check_entry(&mut self, target: Target, token: Option<&str>) -> Result<(), TopologyError> {
        let url = target.url.clone();
        let wrong = |message: String| TopologyError::Check { url: url.clone(), message };
        let mut client =
            BlockingClient::new(target, MAX_RESPONSE_BYTES).map_err(|error| wrong(error.to_string()))?;
        let until = Instant::now() + PATH_TIMEOUT;
        loop {
            let message = match client.get(token, RESPONSE_TIMEOUT) {
                Ok(answer) if answer.status < 400 => {
                    self.reports_phases = answer.has_server_timing();
                    break;
                }
                Ok(answer) => {
                    format!("answered {} to a request that must pass: {}", answer.status, answer.excerpt())
                }
                Err(why) => format!("did not respond: {why}"),
            };
            self.check_alive()?;
            if Instant::now() >= until {
                return Err(wrong(message));
            }
            if self.interrupt.sleep(RETRY_PAUSE) {
                return Err(TopologyError::Interrupted);
            }
        }
        if self.topology.entry.guarded && token.is_some() {
            let answer = client.get(None, RESPONSE_TIMEOUT).map_err(wrong)?;
            if answer.status < 400 {
                return Err(wrong(format!(
                    "answered {} to a request without a token, which must be refused (set `guarded = false` in [load] if it need not)",
                    answer.status
                )));
            }
            // A gateway that does not verify signatures would be fast too, so a forged token must
            // be refused.
            if let Some(forged) = token.and_then(signer::with_changed_signature) {
                let answer = client.get(Some(&forged), RESPONSE_TIMEOUT).map_err(wrong)?;
                if answer.status < 400 {
                    return Err(wrong(format!(
                        "answered {} to a token with a changed signature, which must be refused",
                        answer.status
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns an error if a component has ended that was not ended on purpose.
    pub fn check_alive(&mut self) -> Result<(), TopologyError> {
        self.components
            .iter_mut()
            .filter(|live| !live.stopped_on_purpose)
            .try_for_each(RunningComponent::check)
    }

    /// Account of the component; `None` if the lab cannot switch accounts.
    fn account(&self, component: &str, user: &str) -> Result<Option<Account>, TopologyError> {
        Account::find(user).map_err(|error| {
            let place = format!("component `{component}`: user");
            TopologyError::invalid_value(&self.topology.name, place, error.to_string())
        })
    }

    fn remote(&self, component: &Component) -> Result<ComponentInfo, TopologyError> {
        Ok(ComponentInfo {
            name: component.name.clone(),
            root: None,
            root_only: false,
            ports: Vec::new(),
            limits: Limits::default(),
            counters: None,
            memory_events: None,
            metrics: self.metrics(component)?,
        })
    }

    fn local(
        &self,
        component: &Component,
        program: &Program,
        group: Option<&ComponentGroup>,
    ) -> Result<ComponentInfo, TopologyError> {
        let name = &component.name;
        // Health and metrics requests are not client traffic.
        let ports = program.ports.iter().filter(|port| *port != "admin");
        let numbers = ports.filter_map(|port| self.values.get(&format!("{name}.{port}"))?.parse().ok());
        Ok(ComponentInfo {
            name: name.clone(),
            root: Some(RootPid::default()),
            root_only: false,
            ports: numbers.collect(),
            limits: group.map(ComponentGroup::limits).unwrap_or_default(),
            counters: group.and_then(ComponentGroup::cpu_stat_file),
            memory_events: group.and_then(ComponentGroup::memory_events_file),
            metrics: self.metrics(component)?,
        })
    }

    /// Variables for the folders of the programs that this one needs.
    fn folders_of_needs(
        &self,
        component: &Component,
        program: &Program,
        place: &Workdir,
    ) -> Result<Values, TopologyError> {
        let folder = |need: &String| {
            let known = self.topology.programs.get(need);
            let found = place.programs().find(&component.name, need, known)?;
            let folder = found.parent().unwrap_or(Path::new("/"));
            Ok((folder_name(need), folder.display().to_string()))
        };
        program.required_programs.iter().map(folder).collect()
    }

    fn metrics(&self, component: &Component) -> Result<Option<Metrics>, TopologyError> {
        // Under a tool metrics are not scraped: the work of responding is counted.
        let configured = component.metrics.as_ref().filter(|_| self.wrapper.is_none());
        let Some(metrics) = configured else { return Ok(None) };
        Ok(Some(Metrics { url: self.fill(&metrics.url)?, ..metrics.clone() }))
    }

    fn launch(
        &mut self,
        component: &Component,
        program: &Program,
        change: &TopologyOverrides,
        place: &Workdir,
        folder: &Path,
    ) -> Result<(), TopologyError> {
        let name = &component.name;
        let table = self.topology.programs.get(&program.name);
        let mut path = place.programs().find(name, &program.name, table)?;
        let folder = folder.join(name);
        make_folder(&folder)?;
        let limits = change.limits.get(name).copied().unwrap_or(program.limits);
        let open_files = change.open_files.get(name).copied().or(program.open_files);
        let account = program.user.as_deref().map(|user| self.account(name, user)).transpose()?.flatten();
        let setpriv = account.map(|_| place.programs().find(name, "setpriv", None)).transpose()?;
        let mut filled = self.own_values(component, program, &folder)?;
        filled.extend(self.folders_of_needs(component, program, place)?);
        if let Some(account) = account {
            let files = program.files.keys().map(|file| folder.join(file));
            for path in files.chain([folder.clone()]) {
                account.chown(&path).map_err(failed("give away", &path))?;
            }
        }
        let (mut ready_timeout, mut pause, mut patience) =
            (program.ready_timeout, ready::DEFAULT_POLL_INTERVAL, DEFAULT_STOP_TIMEOUT);
        // The tool's arguments, then the path of the program, precede the program's own arguments.
        let mut before = Vec::new();
        if let Some(wrapper) = self.wrapper.as_ref().filter(|wrapper| wrapper.component == *name) {
            let tool = place.programs().find(name, &wrapper.program, None)?;
            before.clone_from(&wrapper.arguments);
            before.push(std::mem::replace(&mut path, tool).display().to_string());
            (ready_timeout, pause, patience) =
                (ready_timeout * TOOL_SLOWDOWN, TOOL_POLL_INTERVAL, patience * TOOL_SLOWDOWN);
        }
        let prepared = |values: &Values| -> Result<Launch, TopologyError> {
            let fill = |text: &String| self.fill_with(text, values, name);
            let group = (!limits.is_empty()).then(|| place.hierarchy().group(name, limits)).transpose();
            let group = group.map_err(|error| TopologyError::Limit { component: name.clone(), error })?;
            let output = program.stdout.as_ref().map(|file| folder.join(file));
            let own = program.arguments.iter().map(fill);
            Ok(Launch {
                program: path.clone(),
                arguments: before.iter().cloned().map(Ok).chain(own).collect::<Result<_, _>>()?,
                environment: program
                    .environment
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), fill(value)?)))
                    .collect::<Result<_, TopologyError>>()?,
                folder: folder.clone(),
                cores: change.cores.get(name).unwrap_or(&program.cores).clone(),
                stop: program.stop,
                stop_timeout: patience,
                open_files,
                group,
                output,
                account: account.zip(setpriv.clone()),
            })
        };
        for time in 1..=program.repetitions {
            let mut values = filled.clone();
            values.insert(REPETITION_NAME.to_owned(), time.to_string());
            self.wait_for_end(name, program, &mut component::start(name, prepared(&values)?)?)?;
        }
        if program.repetitions > 0 {
            return Ok(());
        }
        let launch = prepared(&filled)?;
        let fill = |text: &String| self.fill_with(text, &filled, name);
        let how = match &program.ready {
            Some(Ready::Http(text, says)) => Some(Ready::Http(fill(text)?, says.clone())),
            Some(Ready::Tcp(text)) => Some(Ready::Tcp(fill(text)?)),
            None => None,
        };
        let ready = Readiness { probe: how, timeout: ready_timeout, poll_interval: pause };
        let about = self.local(component, program, launch.group.as_ref())?;
        let mut live =
            RunningComponent::new(about, launch, ready, ComponentFiles::new(folder, account, filled));
        if !program.standby {
            live.begin(place.interrupt())?;
        }
        self.components.push(live);
        Ok(())
    }

    /// Waits for the end of a program that does its work and exits.
    fn wait_for_end(
        &self,
        name: &str,
        program: &Program,
        process: &mut Process,
    ) -> Result<(), TopologyError> {
        let until = Instant::now() + program.ready_timeout;
        loop {
            match process.exit_status() {
                Some(status) if status == "exit code 0" => return Ok(()),
                Some(status) => return Err(component::ended(name, status, process)),
                None if Instant::now() >= until => {
                    let why = "it did not end".to_owned();
                    return Err(component::unready(name, program.ready_timeout, why, process));
                }
                None if self.interrupt.sleep(POLL_INTERVAL) => return Err(TopologyError::Interrupted),
                None => {}
            }
        }
    }

    /// Writes the files of a component. Returns its values, including the paths of the files.
    fn own_values(
        &self,
        component: &Component,
        program: &Program,
        folder: &Path,
    ) -> Result<Values, TopologyError> {
        let mut values = self.values.clone();
        values.insert("work".to_owned(), folder.display().to_string());
        for port in &program.ports {
            let number = self.values.get(&format!("{}.{port}", component.name)).cloned();
            values.insert(port_name(port), number.unwrap_or_default());
        }
        let places =
            program.files.keys().map(|name| (file_name(name), folder.join(name).display().to_string()));
        values.extend(places);
        for (name, text) in &program.files {
            let path = folder.join(name);
            let text = self.fill_with(text, &values, &component.name)?;
            write_private(&path, &text)?;
        }
        Ok(values)
    }

    pub(super) fn fill_with(
        &self,
        text: &str,
        values: &Values,
        component: &str,
    ) -> Result<String, TopologyError> {
        template::fill(text, values).map_err(|unknown| {
            TopologyError::invalid_value(
                &self.topology.name,
                format!("component `{component}`"),
                unknown.describe(values),
            )
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Components end in the reverse order of their start, so that none loses a component on
        // which it still depends.
        while let Some(live) = self.components.pop() {
            drop(live.process);
        }
    }
}
