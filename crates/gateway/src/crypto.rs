//! The crypto threads: they compute IKE's slow cryptography beside control and workers.

use crate::error::Error;
use crate::pool::{Pool, waking};
use mio::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use testudo_ike::endpoint::{Done, Job, JobId};

/// In a storm of handshakes, more threads would hinder each other and starve everything else.
const MAX_THREADS: usize = 8;
/// Jobs that wait for each thread: enough to keep it busy until control looks again. All others
/// stay in the endpoint, which starts the most advanced handshakes first.
const JOBS_PER_THREAD: usize = 32;

/// The result of a job.
pub(crate) type Result = std::result::Result<Done, Failed>;

/// A job that has panicked.
pub(crate) struct Failed {
    /// The job's number.
    pub(crate) job: JobId,
    /// The panic's message.
    pub(crate) why: String,
}

/// What the names of the crypto threads begin with.
pub(crate) const THREAD_NAME_PREFIX: &str = "crypto";

/// The crypto threads.
pub(crate) struct Crypto {
    pool: Pool<Job, Result>,
    /// Jobs that the threads have.
    out: usize,
}

impl Crypto {
    /// Starts one thread for each processor that `workers` leave over. The threads keep off the
    /// processors in `pinned`, on which workers run.
    pub(crate) fn start(
        workers: usize,
        pinned: Vec<usize>,
        waker: Arc<Waker>,
    ) -> std::result::Result<Self, Error> {
        let processors = available_parallelism().map_or(1, usize::from);
        let begin = move || {
            if let Err(error) = testudo_fastpath::thread::give_way(&pinned) {
                tracing::warn!("cannot keep a crypto thread out of the workers' way: {error}");
            }
        };
        Self::with(processors.saturating_sub(workers).clamp(1, MAX_THREADS), begin, run, waking(waker))
    }

    fn with(
        threads: usize,
        begin: impl Fn() + Clone + Send + 'static,
        run: impl Fn(Job) -> Result + Clone + Send + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::result::Result<Self, Error> {
        let pool = Pool::start(THREAD_NAME_PREFIX, threads, begin, Job::takes_long, run, wake)
            .map_err(Error::io("start a crypto thread"))?;
        Ok(Self { pool, out: 0 })
    }

    /// Takes as many jobs as there is room for.
    pub(crate) fn feed(&mut self, next: impl FnMut() -> Option<Job>) {
        let room = (self.pool.threads() * JOBS_PER_THREAD).saturating_sub(self.out);
        let jobs: Vec<Job> = std::iter::from_fn(next).take(room).collect();
        if !jobs.is_empty() {
            self.out += jobs.len();
            self.pool.submit(jobs);
        }
    }

    /// The results that have arrived.
    pub(crate) fn results(&mut self) -> Vec<Result> {
        if self.out == 0 {
            return Vec::new();
        }
        let results = self.pool.done();
        self.out -= results.len();
        results
    }
}

fn run(job: Job) -> Result {
    guard(job.id(), || job.run())
}

/// A panic is a bug, but only the job's own handshake must suffer by it.
fn guard(job: JobId, work: impl FnOnce() -> Done) -> Result {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Failed { job, why: text.unwrap_or("it panicked").to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::OsEntropy;
    use std::net::SocketAddr;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use testudo_base::spi::SenderId;
    use testudo_ike::alloc::SingleNodeAllocator;
    use testudo_ike::endpoint::{Discard, Endpoint, EndpointConfig};
    use testudo_ike::output::{Output, Path, Time};
    use testudo_vici::message::Message;
    use testudo_vici::schema;

    const NOW: Time = Time(Duration::ZERO);

    fn endpoint(config: EndpointConfig, remote: &str) -> Endpoint {
        let mut endpoint = Endpoint::new(config, Box::new(SingleNodeAllocator::new(OsEntropy, SenderId(1))));
        let psk = || Message::new().with("auth", "psk");
        let child = Message::new()
            .with_list("esp_proposals", ["aes128gcm16"])
            .with_list("local_ts", ["10.0.0.0/8"])
            .with_list("remote_ts", ["10.0.0.0/8"]);
        let connection = Message::new()
            .with_list("remote_addrs", [remote])
            .with_list("proposals", ["aes128gcm16-prfsha256-x25519"])
            .with_section("local", psk())
            .with_section("remote", psk())
            .with_section("children", Message::new().with_section("net", child));
        let connection = Message::new().with_section("site", connection);
        endpoint
            .load_connection(NOW, schema::connection(&connection, schema::Policy::Modern).unwrap())
            .unwrap();
        let secret = Message::new().with("id", "any").with("type", "ike").with("data", "a key of both");
        endpoint.load_secret(schema::shared_secret(&secret).unwrap());
        endpoint
    }

    fn handing_out() -> EndpointConfig {
        EndpointConfig { hand_out_jobs: true, ..EndpointConfig::default() }
    }

    fn sent(endpoint: &mut Endpoint) -> Vec<Vec<u8>> {
        let outputs = std::iter::from_fn(|| endpoint.poll_output());
        outputs
            .filter_map(|output| if let Output::Send { bytes, .. } = output { Some(bytes) } else { None })
            .collect()
    }

    fn path() -> Path {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        Path { local: addr("192.0.2.1:500"), remote: addr("192.0.2.2:500") }
    }

    /// A first message of a peer.
    fn request() -> Vec<u8> {
        let mut peer = endpoint(EndpointConfig::default(), "192.0.2.1");
        peer.set_local_addresses(vec![path().remote.ip()]);
        peer.initiate(NOW, Some("site"), "net").unwrap();
        sent(&mut peer).remove(0)
    }

    /// A responder; one thread, which begins with each job when told; what tells that it is done.
    fn responder(config: EndpointConfig) -> (Endpoint, Crypto, Sender<()>, Receiver<()>) {
        let (go, gate) = channel();
        let (wake, woken) = channel();
        let (gate, wake) = (Arc::new(Mutex::new(gate)), Mutex::new(wake));
        let wait = move |job| {
            // Nobody waits any more at the end of a test.
            let _ = gate.lock().unwrap().recv();
            run(job)
        };
        let wake = move || wake.lock().unwrap().send(()).unwrap_or_default();

        (endpoint(config, "192.0.2.2"), Crypto::with(1, || {}, wait, wake).unwrap(), go, woken)
    }

    #[test]
    fn control_goes_on_while_handshakes_are_computed() {
        let (mut endpoint, mut crypto, go, woken) = responder(handing_out());
        let requests: Vec<Vec<u8>> = (0..3).map(|_| request()).collect();
        for bytes in &requests {
            endpoint.handle_datagram(NOW, path(), bytes);
            crypto.feed(|| endpoint.take_job());
        }
        assert_eq!((sent(&mut endpoint).len(), endpoint.jobs_out(), endpoint.half_open()), (0, 3, 3));
        let mut unknown = requests[0].clone();
        unknown[8] = 1;
        unknown[18] = 37;
        endpoint.handle_datagram(NOW, path(), &unknown);
        assert_eq!(
            sent(&mut endpoint).len(),
            1,
            "nothing is computed yet, but who names an unknown SA is told"
        );
        endpoint.handle_datagram(NOW, path(), &requests[0]);
        assert_eq!(endpoint.stats().discarded(Discard::Repeated), 1, "a repetition is no second job");
        for _ in 0..3 {
            go.send(()).unwrap();
        }
        let mut answers = 0;
        while answers < 3 {
            woken.recv_timeout(Duration::from_secs(60)).unwrap();
            for result in crypto.results() {
                let Ok(done) = result else { panic!("it is computed") };
                endpoint.job_done(NOW, done);
                answers += sent(&mut endpoint).len();
            }
        }
        assert_eq!((endpoint.jobs_out(), endpoint.half_open()), (0, 3));
    }

    #[test]
    fn no_more_jobs_are_taken_than_there_is_room_for() {
        let config =
            EndpointConfig { cookie_threshold: 1000, source_cookie_threshold: 1000, ..handing_out() };
        let (mut endpoint, mut crypto, _go, _woken) = responder(config);
        for _ in 0..JOBS_PER_THREAD + 5 {
            endpoint.handle_datagram(NOW, path(), &request());
        }
        crypto.feed(|| endpoint.take_job());
        assert_eq!((crypto.out, endpoint.jobs_out()), (JOBS_PER_THREAD, JOBS_PER_THREAD + 5));
    }

    #[test]
    fn a_panic_costs_one_handshake() {
        let (mut endpoint, ..) = responder(handing_out());
        endpoint.handle_datagram(NOW, path(), &request());
        let job = endpoint.take_job().unwrap();
        let Err(failed) = guard(job.id(), || panic!("a bug")) else { panic!("nothing comes of it") };
        assert_eq!((failed.job, failed.why.as_str()), (job.id(), "a bug"));
        endpoint.job_failed(NOW, failed.job, &failed.why);
        assert_eq!((endpoint.jobs_out(), endpoint.half_open()), (0, 0));
        assert_eq!(endpoint.stats().discarded(Discard::Computation), 1);
        endpoint.handle_datagram(NOW, path(), &request());
        assert_eq!(endpoint.jobs_out(), 1, "the next is taken");
    }
}
