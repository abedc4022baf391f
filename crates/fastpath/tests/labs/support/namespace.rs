//! Network namespaces without names: each is kept by a thread, and gone with it.

use super::{enter_new_namespace, ip};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A network namespace that lives as long as this.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    keeper: i32,
    release: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// A new namespace with the loopback up.
    pub fn new() -> Self {
        let (tell, told) = channel();
        let (release, released) = channel();
        let thread = std::thread::spawn(move || {
            enter_new_namespace();
            // SAFETY: asks for a number.
            let keeper = unsafe { libc::gettid() };
            tell.send((File::open("/proc/thread-self/ns/net").expect("namespace"), keeper)).unwrap();
            // Ends when the other side is dropped.
            let _ = released.recv();
        });
        let (file, keeper) = told.recv().expect("this test needs root to make a network namespace");
        Self { file, keeper, release: Some(release), thread: Some(thread) }
    }

    /// Moves the calling thread here.
    pub fn enter(&self) {
        // SAFETY: takes a live descriptor, and changes nothing but the calling thread.
        let result = unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "setns: {}", std::io::Error::last_os_error());
    }

    /// Runs something on a thread in the namespace and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let result = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter();
                    work()
                })
                .join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves an interface of the calling thread's namespace here, and configures it.
    pub fn take(&self, interface: &str, address: &str) {
        ip(&format!("link set {interface} netns {}", self.keeper));
        self.run(|| {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1")
                .expect("no IPv6");
            ip(&format!("address add {address} dev {interface}"));
            ip(&format!("link set {interface} up"));
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
