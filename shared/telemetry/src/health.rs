//! Health over HTTP. `/healthz` answers as long as the process runs. `/readyz` answers in plain
//! text with the reason why the process is not ready, or with further information. The process
//! itself decides when it is ready. `/metrics` is for Prometheus (X7).

use std::{
    future::{Future, IntoFuture},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// A process whose check takes longer than this is not ready.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The time that a request may still take after the shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves until `shutdown` completes.
pub async fn serve<Ready>(
    listener: TcpListener,
    ready: Ready,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()>
where
    Ready: Fn() -> BoxFuture<'static, Result<String, String>> + Clone + Send + Sync + 'static,
{
    metrics::switch_on();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness::<Ready>))
        .route("/metrics", get(|| async { ([(CONTENT_TYPE, metrics::TEXT_TYPE)], metrics::text()) }))
        .with_state(ready);
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        shutdown.await;
        stop.cancel();
    });
    let too_late = async {
        stopping.cancelled().await;
        tokio::time::sleep(CLOSE_WITHIN).await;
    };
    tokio::select! {
        biased;
        served = serving.into_future() => served,
        () = too_late => Ok(()),
    }
}

async fn readiness<Ready>(State(ready): State<Ready>) -> (StatusCode, String)
where
    Ready: Fn() -> BoxFuture<'static, Result<String, String>> + Clone + Send + Sync + 'static,
{
    match tokio::time::timeout(ANSWER_WITHIN, ready()).await {
        Ok(Ok(more)) => (StatusCode::OK, format!("ready\n{more}")),
        Ok(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready: the check did not finish in time\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_process_decides_whether_it_is_ready_and_gives_the_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let good = Arc::new(AtomicBool::new(false));
        let ready = {
            let good = good.clone();
            move || -> BoxFuture<'static, Result<String, String>> {
                let good = good.load(Ordering::SeqCst);
                Box::pin(async move {
                    if good { Ok("storage: 7 %\n".into()) } else { Err("the bus is silent".into()) }
                })
            }
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, ready, async {
            let _ = stopped.await;
        }));
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("not ready: the bus is silent\n"));
        good.store(true, Ordering::SeqCst);
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\nstorage: 7 %\n"));
        let answer = get(address, "/metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\ntrellis_build_info{"), "{answer}");
        // An incomplete request must not prevent the process from ending.
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET /metr").await.unwrap();
        drop(stop);
        tokio::time::timeout(Duration::from_secs(60), server).await.unwrap().unwrap().unwrap();
    }
}
