//! Certificates for gateways of the lab, made by OpenSSL when they are needed.

use crate::command::Cmd;
use crate::swanctl::Swanctl;
use crate::{Error, Lab, Result};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with certificates, their keys and CRLs.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// Kinds of keys, as [`Pki::ca`] and [`Pki::end`] take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on that curve: `P-256`, `P-384`, `P-521`.
    Ecdsa(&'static str),
    /// Ed25519.
    Ed25519,
}

impl Pki {
    /// An empty directory.
    pub fn new(lab: &Lab) -> Result<Self> {
        Ok(Self { dir: lab.subdir("pki")? })
    }

    /// Creates a CA under that file name; without an issuer it signs itself. The subject has the
    /// form `/C=CH/CN=Root`.
    pub fn ca(&self, name: &str, kind: KeyKind, subject: &str, issuer: Option<&str>) -> Result<()> {
        let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n";
        self.certificate(name, kind, subject, issuer.unwrap_or(name), extensions)
    }

    /// Creates a certificate for a gateway; `names` has the form `DNS:gw.example,IP:192.0.2.1`, or
    /// is empty.
    pub fn end(&self, name: &str, kind: KeyKind, subject: &str, issuer: &str, names: &str) -> Result<()> {
        let extensions = if names.is_empty() { String::new() } else { format!("subjectAltName={names}\n") };
        self.certificate(name, kind, subject, issuer, &extensions)
    }

    /// Creates a private key `NAME.key` and its public key `NAME.pub`, without a certificate.
    pub fn bare(&self, name: &str, kind: KeyKind) -> Result<()> {
        self.key(name, kind)?;
        openssl(["pkey", "-pubout", "-in", &self.file(name, "key"), "-out", &self.file(name, "pub")])
            .run()?;
        Ok(())
    }

    fn key(&self, name: &str, kind: KeyKind) -> Result<()> {
        let (algorithm, option) = match kind {
            KeyKind::Rsa => ("RSA", Some("rsa_keygen_bits:2048".to_owned())),
            KeyKind::Ecdsa(curve) => ("EC", Some(format!("ec_paramgen_curve:{curve}"))),
            KeyKind::Ed25519 => ("ED25519", None),
        };
        let option = option.map(|option| ["-pkeyopt".to_owned(), option]);
        openssl(["genpkey", "-algorithm", algorithm, "-out", &self.file(name, "key")])
            .args(option.into_iter().flatten())
            .run()?;
        Ok(())
    }

    fn certificate(
        &self,
        name: &str,
        kind: KeyKind,
        subject: &str,
        issuer: &str,
        extensions: &str,
    ) -> Result<()> {
        self.key(name, kind)?;
        let (request, config) = (self.file(name, "request"), self.file(name, "extensions"));
        let mut text = format!("{extensions}subjectKeyIdentifier=hash\n");
        if issuer != name {
            text.push_str("authorityKeyIdentifier=keyid\n");
        }
        self.write(&format!("{name}.extensions"), &text)?;
        openssl(["req", "-new", "-key", &self.file(name, "key"), "-subj", subject, "-out", &request])
            .run()?;
        let sign = ["x509", "-req", "-in", &request, "-days", "30", "-extfile", &config, "-out"];
        let sign = openssl(sign).arg(self.file(name, "pem"));
        let sign = if issuer == name {
            sign.args(["-signkey", &self.file(name, "key")])
        } else {
            sign.args(["-CA", &self.file(issuer, "pem"), "-CAkey", &self.file(issuer, "key")])
        };
        sign.run()?;
        Ok(())
    }

    /// Creates the CA's CRL with these certificates.
    pub fn crl(&self, name: &str, ca: &str, revoked: &[&str]) -> Result<()> {
        let mut index = String::new();
        for certificate in revoked {
            let shown =
                openssl(["x509", "-noout", "-serial", "-in", &self.file(certificate, "pem")]).run()?;
            let serial = shown.stdout.trim().trim_start_matches("serial=");
            // The format of OpenSSL's database: R for revoked, end of validity, time of
            // revocation, ...
            let _ = writeln!(index, "R\t491231235959Z\t200101000000Z\t{serial}\tunknown\t/CN={certificate}");
        }
        let database = format!("{name}.index");
        self.write(&database, &index)?;
        let path = |file: &str| self.dir.join(file).display().to_string();
        let config = format!(
            "[ca]\ndefault_ca=it\n[it]\ndatabase={}\ncrlnumber={}\ndefault_md=sha256\ncrl_extensions=crl\n\
             [crl]\nauthorityKeyIdentifier=keyid\n",
            path(&database),
            path("crlnumber")
        );
        self.write("crlnumber", "01\n")?;
        self.write("ca.conf", &config)?;
        let (certificate, key) = (self.file(ca, "pem"), self.file(ca, "key"));
        openssl(["ca", "-gencrl", "-config", &path("ca.conf"), "-cert", &certificate, "-keyfile", &key])
            .args(["-crldays", "30", "-out", &self.file(name, "crl")])
            .run()?;
        Ok(())
    }

    /// Copies a file such as `root.pem` into a directory that swanctl reads, such as `x509ca`.
    pub fn give(&self, swanctl: &Swanctl, file: &str, directory: &str) -> Result<()> {
        let path = self.dir.join(file);
        let text = fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?;
        swanctl.write_file(directory, file, &text)
    }

    /// Copies a file such as `root.pem` to that path.
    pub fn copy(&self, file: &str, to: &Path) -> Result<()> {
        let copying = Error::io(format!("copy {file} to {}", to.display()));
        fs::copy(self.dir.join(file), to).map(drop).map_err(copying)
    }

    fn file(&self, name: &str, suffix: &str) -> String {
        self.dir.join(format!("{name}.{suffix}")).display().to_string()
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        crate::namespace::write_private(&self.dir.join(file), text)
    }
}

fn openssl<'a>(args: impl IntoIterator<Item = &'a str>) -> Cmd {
    Cmd::new("openssl").args(args)
}
