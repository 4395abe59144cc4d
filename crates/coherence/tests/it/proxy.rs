//! A network in front of a broker, which can be cut, and can stop passing data.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// State of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Well,
    /// Nothing arrives, and no connection breaks.
    Silent,
    /// Every connection breaks, and so does every new one.
    Cut,
}

/// A port that forwards to another one. Closed when this is dropped.
pub(crate) struct Proxy {
    pub(crate) address: String,
    network: watch::Sender<Network>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        Self::start(port, None).await
    }

    /// A proxy that speaks TLS to its clients.
    pub(crate) async fn with_tls(port: u16, tls: rustls::ServerConfig) -> Self {
        Self::start(port, Some(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn start(port: u16, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (network, seen) = watch::channel(Network::Well);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, port, tls.clone(), seen.clone()));
            }
        });
        Self { address, network, task }
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

async fn connection(
    client: TcpStream,
    port: u16,
    tls: Option<TlsAcceptor>,
    mut network: watch::Receiver<Network>,
) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut cut = network.clone();
    let carried = async move {
        match tls {
            None => carry(client, server, &mut network).await,
            Some(tls) => {
                if let Ok(client) = tls.accept(client).await {
                    carry(client, server, &mut network).await;
                }
            }
        }
    };
    tokio::select! {
        () = carried => {}
        _ = cut.wait_for(|network| *network == Network::Cut) => {}
    }
}

async fn carry(
    client: impl AsyncRead + AsyncWrite,
    server: TcpStream,
    network: &mut watch::Receiver<Network>,
) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let mut back = network.clone();
    tokio::select! {
        () = copy(from_client, to_server, network) => {}
        () = copy(from_server, to_client, &mut back) => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    network: &mut watch::Receiver<Network>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let _ = network.wait_for(|network| *network == Network::Well).await;
        if to.write_all(&buffer[..read]).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
}
