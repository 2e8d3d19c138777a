//! A PostgreSQL of the drill's own, which it may stop and start again: no other server is ever restarted.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::wait::{unable, until};
use crate::config::Secret;
use crate::drill::Broke;
use crate::store::{Connect, Limits, Store};

/// Where distributions put the server's programs; the newest version is taken.
const HOMES: [&str; 2] = ["/usr/lib/postgresql", "/usr"];
/// The user that the server runs as where the drill is root's: it refuses to be that.
const USER: &str = "postgres";
const UP: Duration = Duration::from_secs(40);

/// A cluster in the drill's folder and its process.
#[derive(Debug)]
pub(super) struct Server {
    binary: PathBuf,
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    pub(super) url: Secret,
    pub(super) password: Secret,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Not killed: it would leave its processes and its shared memory behind.
            signal(&child, Signal::QUIT);
            let _reaped = child.wait();
        }
    }
}

impl Server {
    /// Makes a cluster in this folder, which must be the drill's, and starts it. Everything that keeps it from that is
    /// `Broke::Unable`, with the reason.
    pub(super) async fn start(binary: &Path, folder: &Path) -> Result<Self, Broke> {
        let programs = programs().ok_or_else(|| unable(&"PostgreSQL", &"initdb is not here"))?;
        if geteuid().is_root() {
            open_to_user(folder)?;
        }
        let password = Secret::new(uuid::Uuid::new_v4().simple().to_string());
        let home = folder.join("postgresql");
        let io = |error: std::io::Error| unable(&home.display(), &error);
        fs::create_dir(&home).map_err(io)?;
        let file = home.join("password");
        fs::write(&file, password.expose()).map_err(io)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(io)?;
        give(&[&home, &file])?;
        let port = free_port()?;
        let url = format!("postgresql://drill:{}@127.0.0.1:{port}/postgres", password.expose());
        let mut server = Self {
            binary: binary.to_owned(),
            programs,
            folder: home,
            port,
            child: None,
            url: Secret::new(url),
            password,
        };
        server.make(&file).await?;
        fs::remove_file(&file).map_err(|error| unable(&file.display(), &error))?;
        server.run()?;
        server.answers().await?;
        Ok(server)
    }

    /// Ends it (`at_once`: as by a crash, from which it recovers) and starts it again.
    pub(super) async fn restart(&mut self, at_once: bool, away: Duration) -> Result<(), Broke> {
        if let Some(child) = &mut self.child {
            signal(child, if at_once { Signal::QUIT } else { Signal::INT });
            until("PostgreSQL ends", UP, async || {
                Ok(child.try_wait().ok().flatten().map(|_status| ()))
            })
            .await?;
        }
        tokio::time::sleep(away).await;
        self.run()?;
        self.answers().await
    }

    async fn make(&self, password: &Path) -> Result<(), Broke> {
        let data = self.folder.join("data");
        let program = self.programs.join("initdb");
        let words = ["-U", "drill", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"];
        let mut command = self.command(&program, "initdb.log")?;
        command.args(words).arg("--pwfile").arg(password).arg("-D").arg(&data);
        let mut child = command.spawn().map_err(|error| unable(&program.display(), &error))?;
        let status = until("initdb ends", UP, async || Ok(child.try_wait().ok().flatten())).await?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(self.folder.join("initdb.log")).unwrap_or_default();
        Err(unable(&"initdb", &said.trim_end().lines().last().unwrap_or_default()))
    }

    fn run(&mut self) -> Result<(), Broke> {
        let program = self.programs.join("postgres");
        let mut command = self.command(&program, "server.log")?;
        command.arg("-D").arg(self.folder.join("data")).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
            "shared_buffers=32MB",
            "timezone=UTC",
        ] {
            command.args(["-c", setting]);
        }
        let child = command.spawn().map_err(|error| unable(&program.display(), &error))?;
        self.child = Some(child);
        Ok(())
    }

    async fn answers(&self) -> Result<(), Broke> {
        let limits = Limits { ttl: UP };
        let connect = Connect::new(self.url.expose(), limits, false)
            .map_err(|invalid| unable(&"PostgreSQL", &invalid))?;
        let store = Store::new(connect).map_err(|error| unable(&"PostgreSQL", &error))?;
        until("PostgreSQL answers", UP, async || Ok(store.drill_server().await.ok())).await?;
        Ok(())
    }

    /// A program of the server's, which dies in order with the drill: first the one that starts it asks for that, then,
    /// since a change of user forgets it, the one that changes the user.
    fn command(&self, program: &Path, log: &str) -> Result<Command, Broke> {
        let log = self.folder.join(log);
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(|error| unable(&log.display(), &error))?;
        let again = file.try_clone().map_err(|error| unable(&log.display(), &error))?;
        let mut command = Command::new(&self.binary);
        command.args(["drill", "child", "--parent"]).arg(std::process::id().to_string());
        command.args(["--", "setpriv", "--pdeathsig", "QUIT"]);
        if geteuid().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
        }
        command.arg("--").arg(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again);
        Ok(command)
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _gone = pid.map(|pid| kill_process(pid, signal));
}

/// The folder with `initdb` and `postgres`.
fn programs() -> Option<PathBuf> {
    let mut found = Vec::new();
    for home in HOMES {
        let folders = fs::read_dir(home).into_iter().flatten().filter_map(Result::ok);
        for folder in folders.map(|folder| folder.path()) {
            let version = folder.file_name()?.to_string_lossy().replace("pgsql-", "");
            let bin = folder.join("bin");
            if let Ok(version) = version.parse::<u32>()
                && version >= 15
                && bin.join("initdb").exists()
                && bin.join("postgres").exists()
            {
                found.push((version, bin));
            }
        }
    }
    found.sort();
    found.pop().map(|(_, bin)| bin)
}

/// Lets the server's user go through the folder, and says which one above it does not let it.
fn open_to_user(folder: &Path) -> Result<(), Broke> {
    let passable = fs::Permissions::from_mode(0o711);
    fs::set_permissions(folder, passable).map_err(|error| unable(&folder.display(), &error))?;
    for above in folder.ancestors().skip(1) {
        let mode = fs::metadata(above).map_or(0, |found| found.mode());
        if mode & 1 == 0 {
            return Err(unable(&above.display(), &format!("the user {USER} cannot go through it")));
        }
    }
    Ok(())
}

/// Makes them the server's user's, where that is another one.
fn give(paths: &[&Path]) -> Result<(), Broke> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let status = Command::new("chown")
        .arg(format!("{USER}:"))
        .args(paths)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) | Err(_) => Err(unable(&USER, &"there is no such user")),
    }
}

fn free_port() -> Result<u16, Broke> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(bound.map_err(|error| unable(&"a port", &error))?.port())
}
