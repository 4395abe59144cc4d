//! Test support: files that configurations name, the binary, and comparison of texts.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use auth::token::jws::{Signer, SigningAlgorithm, public_jwks};
use config::{ConfigSource, FileSystem, LoadedConfig, RefusedConfig};

/// Time of the tests, in seconds since 1970: a Friday in 2027.
pub(crate) const NOW: u64 = 1_800_000_000;

/// Folder of the tests' sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")
}

/// Root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder for one test. It is removed afterwards.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Key that signs tokens of the test issuers. `jwks.json` contains its public half.
pub(crate) static SIGNER: LazyLock<Signer> =
    LazyLock::new(|| Signer::generate(SigningAlgorithm::Es256).unwrap());

/// A secret of zeros: not a real secret, but in the right format.
const ZEROS_FOLLOW: &str =
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==.1\n";
/// A shared secret as `postern admin revocation secret` prints it.
const FOLLOW_SECRET: &str =
    "Ggyrc423GEg2UcR1SxhQ8sFTm0IKBjvI/ZJtr1K5AB1dxsxffpRZQKoPsQ1cHVTe8hMqDdEYQ80kQ+hGyKPnWA==.1\n";

/// Certificates, keys and key sets that the test configurations name. They are created for each
/// run.
pub(crate) static FILES: LazyLock<Folder> = LazyLock::new(|| {
    let folder = Folder::new("files");
    certificate(&folder, "cert.pem", "key.pem", false);
    folder.write("header.key", "s3cret key\n");
    folder.write("two-lines.key", "a\nb\n");
    certificate(&folder, "ca.pem", "other-key.pem", false);
    certificate(&folder, "cluster-ca.crt", "cluster-key.pem", false);
    certificate(&folder, "expired.pem", "expired-key.pem", true);
    certificate(&folder, "app-cert.pem", "app-key.pem", false);
    folder.write("ca.crl", revocation_list());
    let key = |algorithm| Signer::generate(algorithm).unwrap();
    folder.write("rsa-key.pem", key(SigningAlgorithm::Rs256).to_pkcs8_pem().unwrap());
    folder.write("assertion-key.pem", key(SigningAlgorithm::Es256).to_pkcs8_pem().unwrap());
    let keys = public_jwks([&*SIGNER]);
    folder.write("jwks.json", keys.to_string());
    let mut some = keys;
    let secret = serde_json::json!({ "kty": "oct", "kid": "shared", "k": "aHVudGVyMg" });
    some["keys"].as_array_mut().unwrap().push(secret);
    folder.write("some-keys.json", some.to_string());
    folder.write("no-keys.json", r#"{"keys":[]}"#);
    folder.write("garbage.pem", "this is no PEM: hunter2");
    folder.write("headers.txt", "# for the collector\nAuthorization: Bearer hunter2\n");
    folder.write("no-headers.txt", "Bearer hunter2\n");
    folder.write("shop.secret", "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=\n");
    folder.write("billing.secret", "gT0bB9yPq2l7WmXkVYc4nS5rJd8uHe1oAf3iZ6tLxQM=\n");
    folder.write("short.secret", "hunter2\n");
    folder
        .write("users.htpasswd", "prometheus:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n");
    folder.write(
        "weak.htpasswd",
        "# staff\nada:$apr1$salt$4FPC2kMTHdwzVkTzYqoNJ1\ngrace:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nnobody\n",
    );
    folder.write("client.secret", "hunter2\n");
    folder.write("proxy.url", "http://me:hunter2@proxy.example:3128\n");
    folder.write("token", "hunter2\n");
    folder.write("pod.zone", "zone-1\n");
    // What the start pages name (docs/start).
    folder.write("application.token", "hunter2\n");
    folder.write("programs.secret", "9b1f0c5e7a3d48c2b6e4f1a09d7c8e5b\n");
    folder.write("no-words.toml", "no words here\n");
    let messages = config::messages();
    folder.write("fr.toml", &messages);
    for name in ["templates", "templates-faulty", "templates-none"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
    }
    folder.write("templates/error.html", "<h1>{{ title }}</h1>\n{% if user %}{{ user }}{% endif %}\n");
    folder.write("templates/style.css", "h1{color:teal}\n");
    folder.write("templates-faulty/error.html", "<h1>{{ title }}</h1>\n<p>{{ passwort }}</p>\n");
    folder.write("templates-faulty/page.html", "<title>{{ title }}</title>\n{{ main\n");
    folder.write("templates-faulty/style.css", "</style>");
    let faulty = messages.replace("signed_in = \"You are signed in as {user}.\"", "signed_in = \"{name}\"");
    let faulty = faulty.replace("retry = \"Try again\"\n", "retyr = \"Try again\"\n");
    folder.write("fr-faulty.toml", format!("{faulty}\n[footer]\nimprint = \"x\"\n"));
    for (name, mode, text) in [
        ("provider.secret", 0o600, "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n"),
        ("open.secret", 0o644, "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n"),
        ("broker.password", 0o600, "hunter2\n"),
        ("follow.secret", 0o600, FOLLOW_SECRET),
        ("login.keys", 0o600, "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=\n"),
        ("login.secret", 0o600, "hunter2\n"),
        ("zeros.key", 0o600, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"),
        ("counted.key", 0o600, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"),
        ("zeros.follow", 0o600, ZEROS_FOLLOW),
        ("repeated.token", 0o600, "abababababababababababababababab\n"),
        (
            "bearer.token",
            0o600,
            "# two, of which the first is the newer\nq8Zt3vR1xW6nB4mK0pLs7dYh\nhunter2-and-some-more\n",
        ),
        ("open.token", 0o644, "q8Zt3vR1xW6nB4mK0pLs7dYh\n"),
        ("malformed.secret", 0o600, "hunter2\n"),
        ("database.url", 0o600, "postgres://postern:hunter2@db.example/postern\n"),
        ("open.url", 0o644, "postgres://postern:hunter2@db.example/postern\n"),
    ] {
        let path = folder.write(name, text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, algorithm) in
        [("client-key.pem", SigningAlgorithm::Es256), ("client-rsa.pem", SigningAlgorithm::Rs256)]
    {
        let path = folder.write(name, key(algorithm).to_pkcs8_pem().unwrap());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
});

fn certificate(folder: &Folder, certificate: &str, key: &str, expired: bool) {
    let mut params = rcgen::CertificateParams::new(vec!["app.example".to_owned()]).unwrap();
    if expired {
        params.not_after = rcgen::date_time_ymd(2026, 12, 31);
    }
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pair = rcgen::KeyPair::generate().unwrap();
    let made = params.self_signed(&pair).unwrap();
    folder.write(certificate, made.pem());
    folder.write(key, pair.serialize_pem());
}

/// A list of no revoked certificates, of an authority of its own.
fn revocation_list() -> String {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(params, rcgen::KeyPair::generate().unwrap());
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 1),
        next_update: rcgen::date_time_ymd(2060, 1, 1),
        crl_number: rcgen::SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    list.signed_by(&issuer).unwrap().pem().unwrap()
}

/// Loads a configuration that uses the files in [`FILES`].
pub(crate) fn load(text: &str) -> Result<Box<LoadedConfig>, Box<RefusedConfig>> {
    let source = ConfigSource { name: "postern.toml", text, base: &FILES.0, files: &FileSystem };
    config::load(source, Timestamp::from_secs(NOW), 1)
}

/// The faults of a configuration that must be refused, one per line.
pub(crate) fn faults(text: &str) -> String {
    match load(text) {
        Ok(_) => panic!("accepted, and should not be:\n{text}"),
        Err(refused) => refused.report.lines().collect::<Vec<_>>().join("\n"),
    }
}

/// The smallest valid configuration, with `more` appended.
pub(crate) fn minimal_and(more: &str) -> String {
    let minimal = std::fs::read_to_string(sources().join("sound/minimal.toml")).unwrap();
    format!("{minimal}\n{more}")
}

/// Runs the binary to its end. A process that wrongly keeps serving is killed after five minutes,
/// with code 124.
pub(crate) fn postern(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", "300", env!("CARGO_BIN_EXE_postern")]);
    // The machine's proxies would appear in the output.
    for variable in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

/// Standard output, then standard error.
pub(crate) fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

/// Compares with `expected/NAME`. On a difference it writes the actual text to a file that can be
/// copied.
pub(crate) fn expect(name: &str, seen: &str) {
    let path = sources().join("expected").join(name);
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected == seen {
        return;
    }
    let mut report = difference(&expected, seen);
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&copy, seen).unwrap();
    let _ = write!(report, "\nif that is right: cp {} {}", copy.display(), path.display());
    panic!("{name} differs\n{report}");
}

/// Lines that are missing (`-`) and new (`+`).
pub(crate) fn difference(expected: &str, seen: &str) -> String {
    let mut report = String::new();
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), seen.lines().collect());
    for line in old.iter().filter(|line| !new.contains(line)) {
        let _ = writeln!(report, "- {line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        let _ = writeln!(report, "+ {line}");
    }
    if report.is_empty() { "the same lines in another order".into() } else { report }
}

/// Time limit of a test for an expected event.
const PATIENCE: Duration = Duration::from_mins(1);

/// A command that runs until it is stopped, or dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_postern")).args(arguments))
    }

    /// Starts it so that a write beyond the file size limit fails, as on a full disk. No signal
    /// ends the process.
    pub(crate) fn start_with_limits_as_errors(arguments: &[&str]) -> Self {
        let mut command = Command::new("env");
        command.args(["--ignore-signal=XFSZ", env!("CARGO_BIN_EXE_postern")]);
        Self::spawn(command.args(arguments))
    }

    /// Starts it with a limit of open descriptors.
    pub(crate) fn start_with_descriptors(most: usize, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit -n {most} && exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_postern"),
        ]);
        Self::spawn(command.args(arguments))
    }

    /// Starts it with a wall clock that is shifted by the offset in a file. Other clocks are the
    /// machine's.
    pub(crate) fn start_with_clock(file: &Path, arguments: &[&str]) -> Self {
        let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
        let library = folders
            .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
            .find(|path| path.exists());
        let library = library.expect("libfaketime is not installed: run dev/setup test");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", file);
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::spawn(command.args(arguments))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { child, lines, said: String::new() }
    }

    /// Waits for a line with this text and returns it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?} in:\n{}", self.said);
            };
            let _ = writeln!(self.said, "{line}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All output so far.
    pub(crate) fn output(&mut self) -> &str {
        while let Ok(line) = self.lines.try_recv() {
            let _ = writeln!(self.said, "{line}");
        }
        &self.said
    }

    /// A file of the process in `/proc`.
    pub(crate) fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.id()).join(name)
    }

    /// The process ID.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.id()]).status().unwrap().success());
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "still running; it said:\n{}", self.said);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first address after `mark` in a line.
pub(crate) fn address_in(line: &str, mark: &str) -> String {
    let (_, rest) = line.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {line}"));
    rest.split(|c: char| c.is_whitespace()).next().unwrap().to_owned()
}

/// Sends bytes and reads until the other side closes.
pub(crate) fn exchange(address: &str, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a `GET` over a new connection.
pub(crate) fn get(address: &str, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// An environment variable that configures the tests.
#[expect(clippy::disallowed_methods, reason = "a test binary has no configuration file")]
pub(crate) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// A new database on the PostgreSQL server of the tests, as a URL and by name.
pub(crate) fn database_of_its_own(kind: &str) -> (String, String) {
    let url = environment("POSTERN_TEST_POSTGRES")
        .expect("POSTERN_TEST_POSTGRES is not set: run dev/with-postgres cargo test -p postern");
    let (server, _) = url.rsplit_once('/').unwrap();
    let name = format!("{kind}_{}", std::process::id());
    psql(&url, &format!("CREATE DATABASE {name}"));
    (format!("{server}/{name}"), name)
}

/// Result of a statement, without formatting.
pub(crate) fn psql(url: &str, statement: &str) -> String {
    let done = Command::new("psql").args([url, "-qAtc", statement]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
