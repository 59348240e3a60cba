// SPDX-License-Identifier: Apache-2.0
//! Sends files over a QUIC connection to each receiver (quinn), with a stream for each file.
//!
//!   bench-quic send listen=IP:PORT receivers=N cert=FILE window=BYTES control=cubic|bbr
//!                   paths on standard input, one per line
//!   bench-quic recv server=IP:PORT bind=IP cert=FILE window=BYTES directory=DIR
//!
//! A stream is: name length (u16), name, bytes. The sender writes its certificate to FILE.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, ServerConfig, TransportConfig, VarInt};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

type Failure = Box<dyn Error + Send + Sync>;
type Words = HashMap<String, String>;

const NAME: &str = "bench";
const PIECE_BYTES: usize = 1 << 18;
const STREAMS: u32 = 4096; // simultaneously; quinn reserves memory for each
const IDLE: Duration = Duration::from_secs(600);
const ALIVE: Duration = Duration::from_secs(5);

fn word<'a>(words: &'a Words, name: &str) -> Result<&'a str, Failure> {
    Ok(words.get(name).ok_or(format!("found no {name}=; valid: {name}=VALUE"))?)
}

fn transport(words: &Words) -> Result<Arc<TransportConfig>, Failure> {
    let window: u32 = word(words, "window")?.parse()?;
    let mut config = TransportConfig::default();
    config
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .receive_window(VarInt::from_u32(window))
        .stream_receive_window(VarInt::from_u32(window))
        .send_window(u64::from(window))
        .send_fairness(false) // files one after the other
        .max_idle_timeout(Some(IDLE.try_into()?))
        .keep_alive_interval(Some(ALIVE));
    if words.get("control").is_some_and(|name| name == "bbr") {
        config.congestion_controller_factory(Arc::new(BbrConfig::default()));
    } else {
        config.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    Ok(Arc::new(config))
}

async fn send_files(connection: Connection, mut paths: mpsc::UnboundedReceiver<PathBuf>) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    while let Some(path) = paths.recv().await {
        let name = path.file_name().and_then(|n| n.to_str()).ok_or("a path without a name")?.to_owned();
        let mut file = tokio::fs::File::open(&path).await?;
        let mut stream = connection.open_uni().await?;
        stream.write_all(&u16::try_from(name.len())?.to_be_bytes()).await?;
        stream.write_all(name.as_bytes()).await?;
        loop {
            let count = file.read(&mut piece).await?;
            if count == 0 {
                break;
            }
            stream.write_all(&piece[..count]).await?;
        }
        stream.finish()?;
    }
    Ok(())
}

async fn send(words: &Words) -> Result<(), Failure> {
    let certified = rcgen::generate_simple_self_signed(vec![NAME.into()])?;
    let der = CertificateDer::from(certified.cert);
    let key = PrivatePkcs8KeyDer::from(certified.key_pair.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![der.clone()], key.into())?;
    config.transport_config(transport(words)?);
    let endpoint = Endpoint::server(config, word(words, "listen")?.parse()?)?;
    let part = format!("{}.part", word(words, "cert")?);
    tokio::fs::write(&part, &der).await?;
    tokio::fs::rename(&part, word(words, "cert")?).await?;

    let receivers: usize = word(words, "receivers")?.parse()?;
    let mut feeds = Vec::new();
    let mut tasks = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..receivers {
        let connection = endpoint.accept().await.ok_or("closed")?.await?;
        connections.push(connection.clone());
        let (feed, paths) = mpsc::unbounded_channel();
        feeds.push(feed);
        tasks.push(tokio::spawn(send_files(connection, paths)));
    }
    eprintln!("bench-quic: {receivers} receivers connected");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        for feed in &feeds {
            feed.send(PathBuf::from(&line))?;
        }
    }
    drop(feeds);
    for task in tasks {
        task.await??;
    }
    let sum = |field: fn(&quinn::ConnectionStats) -> u64| connections.iter().map(|c| field(&c.stats())).sum::<u64>();
    println!(
        "quic=1 datagrams={} lost={} feedback={}",
        sum(|s| s.path.sent_packets),
        sum(|s| s.path.lost_packets),
        sum(|s| s.udp_rx.datagrams),
    );
    Ok(())
}

async fn keep(mut stream: RecvStream, directory: PathBuf) -> Result<(), Failure> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut name = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut name).await?;
    let name = String::from_utf8(name)?;
    let leaf = Path::new(&name).file_name().ok_or("a file without a name")?;
    let part = directory.join(format!(".{}.part", leaf.to_string_lossy()));
    let mut file = tokio::fs::File::create(&part).await?;
    while let Some(chunk) = stream.read_chunk(PIECE_BYTES, true).await? {
        file.write_all(&chunk.bytes).await?;
    }
    file.flush().await?;
    drop(file);
    tokio::fs::rename(&part, directory.join(leaf)).await?;
    Ok(())
}

async fn certificate(path: &str) -> Result<CertificateDer<'static>, Failure> {
    for _ in 0..200 {
        if let Ok(der) = tokio::fs::read(path).await {
            return Ok(CertificateDer::from(der));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("found no certificate at '{path}'").into())
}

async fn receive(words: &Words) -> Result<(), Failure> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate(word(words, "cert")?).await?)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport(words)?);
    let bind: IpAddr = word(words, "bind")?.parse()?;
    let mut endpoint = Endpoint::client(SocketAddr::new(bind, 0))?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(word(words, "server")?.parse()?, NAME)?.await?;
    let directory = PathBuf::from(word(words, "directory")?);
    loop {
        let stream = connection.accept_uni().await?;
        tokio::spawn(keep(stream, directory.clone()));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Words = arguments
        .iter()
        .filter_map(|a| a.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match arguments.first().map(String::as_str) {
        Some("send") => send(&words).await,
        Some("recv") => receive(&words).await,
        other => Err(format!("found {other:?}; valid: send, recv").into()),
    }
}
