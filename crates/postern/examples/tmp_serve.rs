use std::sync::Arc;
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn main() {
    let p = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let l = match postern::config::load_file(&p, auth::time::Timestamp::from_secs(1_795_000_000), 1) { Ok(l) => l, Err(r) => { println!("{}", r.report.display()); return } };
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let services = gateway::server::Services { clock: Arc::new(gateway::clock::SystemClock), metrics: gateway::metrics::Metrics::new(8), access_log: None, tracer: None, control: rt.handle().clone(), secret: gateway::cache::Secret::new([7;16]), generation: gateway::cache::Generation::default() };
    let w: usize = std::env::args().nth(2).map(|s| s.parse().unwrap()).unwrap_or(2);
    let g = gateway::server::Gateway::start(l.config, w, services).unwrap();
    println!("{:?}", g.addresses());
    loop { std::thread::park() }
}
