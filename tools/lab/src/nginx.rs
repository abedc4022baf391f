//! A real web server with a directory of files.

use crate::files::{self, Sha256};
use crate::namespace::write_private;
use crate::process::Process;
use crate::{Error, Namespace, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(120);

/// A running nginx, on port 80 of both address families.
#[derive(Debug)]
pub struct Nginx {
    _process: Process,
    root: PathBuf,
}

impl Nginx {
    /// Starts it in the namespace and waits until it listens.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-nginx", namespace.role()))?;
        let root = dir.join("www");
        std::fs::create_dir(&root).map_err(Error::io(format!("make {}", root.display())))?;
        let config = dir.join("nginx.conf");
        write_private(&config, &config_text(&dir, &root))?;
        let cmd = namespace.cmd("nginx").arg("-p").arg(&dir).arg("-c").arg(&config);
        let mut process = namespace.start("nginx", cmd.args(["-e", "stderr"]))?;
        process.wait_ready(START_LIMIT, || {
            let listening = namespace.run("ss", ["-Hltn", "sport", "=", ":80"])?.stdout;
            Ok(if listening.lines().count() >= 2 { Ok(()) } else { Err("not listening".into()) })
        })?;
        Ok(Self { _process: process, root })
    }

    /// Creates a file of pseudo-random octets to serve.
    pub fn add_file(&self, name: &str, length: u64, seed: u64) -> Result<Sha256> {
        files::write_random(&self.root.join(name), length, seed)
    }

    /// Serves an existing file under its own name.
    pub fn link_file(&self, file: &Path) -> Result<()> {
        let name = file.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(file, self.root.join(name)).map_err(Error::io(format!(
            "link {} into {}",
            file.display(),
            self.root.display()
        )))
    }
}

/// A single process without workers: a worker would outlive a killed master.
fn config_text(dir: &Path, root: &Path) -> String {
    format!(
        "daemon off;
master_process off;
user root;
pid {dir}/nginx.pid;
events {{
    worker_connections 256;
}}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{
        listen 80;
        listen [::]:80 ipv6only=on;
        root {root};
    }}
}}
",
        dir = dir.display(),
        root = root.display(),
    )
}
