//! Asking a pool: this process opens it, or asks the process that serves it, through that one's control socket.
//!
//! A request and its answer are a line of JSON each. The socket lies in a directory that only its user can enter.

use super::file_system::PoolFiles;
use super::filler::FillErrors;
use super::open::{is_held, open};
use super::request::Request;
use super::scrub::scrub;
use crate::system::signals::EndSignal;
use crate::terminal::exit_code::FAILED;
use crate::terminal::outcome::of_pool;
use anyhow::{anyhow, bail, Context, Result};
use pool::{Pool, PoolError};
use serde_json::{json, Value};
use std::fs::{DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Scope};
use std::time::Duration;

/// The longest request.
const REQUEST_BYTES: u64 = 64 << 10;
/// How long a client may take to send it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may take to answer: one that is stopped never does.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// How often it is looked whether the server ends.
const TICK: Duration = Duration::from_millis(50);

/// A pool that this process has opened, or that another one has open.
pub enum PoolAtPath {
    Free(Arc<Pool>),
    /// The error that says which process that is.
    Held(PoolError),
}

/// Opens a pool.
pub fn open_free(path: &Path) -> Result<PoolAtPath> {
    open_with(path, pool::Options::default())
}

fn open_with(path: &Path, options: pool::Options) -> Result<PoolAtPath> {
    match open(path, options) {
        Ok(pool) => Ok(PoolAtPath::Free(pool)),
        Err(PoolError::Io { what, source }) if is_held(&source) => {
            Ok(PoolAtPath::Held(PoolError::Io { what, source }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Does what is asked for. Returns what `--json` prints.
pub fn ask(path: &Path, request: &Request) -> Result<Value> {
    ask_within(path, request, ANSWER_TIME)
}

/// The same, where a server that takes longer than `patience` counts as one that does not answer.
pub fn ask_within(path: &Path, request: &Request, patience: Duration) -> Result<Value> {
    let for_repair = matches!(request, Request::Check { repair: true, .. });
    let pool = match open_with(path, pool::Options { for_repair, ..pool::Options::default() })? {
        PoolAtPath::Free(pool) => pool,
        PoolAtPath::Held(why) => return ask_server_within(path, request, &why, patience),
    };
    pool.settle();
    let files = PoolFiles::new(Arc::clone(&pool));
    let answer = request.perform(&pool, &files);
    // Its table is closed before the pool.
    drop(files);
    // Whatever the answer: what was changed is written to its place.
    let closed = pool.close();
    let answer = answer?;
    closed?;
    Ok(answer)
}

/// Asks the process that serves a pool; `held` says which process has it.
pub fn ask_server(path: &Path, request: &Request, held: &PoolError) -> Result<Value> {
    ask_server_within(path, request, held, ANSWER_TIME)
}

fn ask_server_within(path: &Path, request: &Request, held: &PoolError, patience: Duration) -> Result<Value> {
    let socket = socket_of(path)?;
    let busy = || format!("{}: its server does not answer at its control socket", path.display());
    let mut stream = match UnixStream::connect(&socket) {
        // Only a server has a control socket; one that was killed leaves it behind.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Err(PoolError::Refused(format!(
                "{held}; try again when that has ended: only a pool that `sapwood pool serve` serves may be used by \
                 several commands"
            ))
            .into());
        }
        connected => connected.with_context(busy)?,
    };
    stream.set_read_timeout(Some(patience)).with_context(busy)?;
    stream.set_write_timeout(Some(patience)).with_context(busy)?;
    let line = serde_json::to_string(request)? + "\n";
    stream.write_all(line.as_bytes()).with_context(busy)?;
    let mut answers = BufReader::new(stream);
    let mut answer = String::new();
    // An empty line says that it goes on.
    while answer.trim().is_empty() {
        answer.clear();
        if answers.read_line(&mut answer).with_context(busy)? == 0 {
            bail!(busy());
        }
    }
    let answer: Value = serde_json::from_str(&answer).with_context(busy)?;
    match (answer.get("done"), answer["error"].as_str()) {
        (Some(done), _) => Ok(done.clone()),
        (None, Some(error)) => Err(match answer["code"].as_u64() {
            Some(2) => PoolError::Invalid(error.into()).into(),
            Some(3) => PoolError::Damaged { what: path.display().to_string(), why: error.into() }.into(),
            Some(4) => PoolError::Refused(error.into()).into(),
            _ => anyhow!("{error}"),
        }),
        (None, None) => Err(anyhow!(busy())),
    }
}

/// The control socket of a pool.
fn socket_of(path: &Path) -> Result<PathBuf> {
    let metadata = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    // A block device by its number, a file by its inode, so that all its paths lead to one socket.
    let name = match metadata.rdev() {
        0 => format!("{:x}-{:x}", metadata.dev(), metadata.ino()),
        device => format!("device-{device:x}"),
    };
    Ok(directory()?.join(format!("{name}.socket")))
}

/// Where commands of this user read volumes of a pool that is served, however others connect.
pub fn nbd_socket_of(path: &Path) -> Result<PathBuf> {
    Ok(socket_of(path)?.with_extension("nbd"))
}

/// A directory that only this user can enter.
fn directory() -> Result<PathBuf> {
    let user = rustix::process::getuid();
    let directory = if user.is_root() {
        PathBuf::from("/run/sapwood")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) => PathBuf::from(runtime).join("sapwood"),
            None => PathBuf::from(format!("/tmp/sapwood-{}", user.as_raw())),
        }
    };
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("making {}", directory.display()));
        }
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(&directory)?;
    if !metadata.is_dir() || metadata.uid() != user.as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(anyhow!("{}: not a directory that only this user can write", directory.display()));
    }
    Ok(directory)
}

/// What follows when a volume was made or deleted.
pub type OnChange = Box<dyn Fn() + Send + Sync>;

/// What a server has.
#[derive(Clone)]
pub struct Served {
    pub pool: Arc<Pool>,
    pub files: Arc<PoolFiles>,
    /// Set as soon as volumes are served: that of the volume NAME, for commands of this user.
    pub uri: Arc<OnceLock<String>>,
    /// Called when a volume was made or deleted; set as soon as somebody wants to know.
    pub on_change: Arc<OnceLock<OnChange>>,
    /// Why volumes are not being filled.
    pub fill_errors: FillErrors,
}

/// Adds to a list why volumes are not being filled.
fn add_errors(list: &mut Value, errors: &FillErrors) {
    let errors = errors.lock();
    for volume in list["volumes"].as_array_mut().into_iter().flatten() {
        let why = volume["name"].as_str().and_then(|name| errors.get(name)).cloned();
        if let (Some(why), true) = (why, volume["fill"].is_object()) {
            volume["fill"]["error"] = json!(why);
        }
    }
}

/// Answers at the control socket until the end.
pub struct Control {
    path: PathBuf,
    thread: JoinHandle<()>,
}

impl Control {
    /// Begins to answer for a pool that this process serves: nobody else can, so a socket that is there was left behind.
    pub fn start(path: &Path, served: Served, end: &EndSignal) -> Result<Self> {
        let socket = socket_of(path)?;
        match std::fs::remove_file(&socket) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).context(socket.display().to_string()),
            _ => {}
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("listening on {}", socket.display()))?;
        std::fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let has_ended = end.watch();
        let thread = thread::Builder::new().name("control".into()).spawn(move || {
            thread::scope(|scope| {
                while !has_ended() {
                    match listener.accept() {
                        // A client that goes away, or sends nothing, is no error of the server.
                        Ok((stream, _)) => drop(answer(stream, &served, scope, &has_ended)),
                        Err(e) if e.kind() == ErrorKind::WouldBlock => thread::sleep(TICK),
                        Err(_) => thread::sleep(TICK),
                    }
                }
            });
        })?;
        Ok(Control { path: socket, thread })
    }

    /// Waits until the last request is answered. The end must have come.
    pub fn stop(self) {
        // A panic in the thread was printed.
        let _ = self.thread.join();
        let _ = std::fs::remove_file(self.path);
    }
}

fn answer<'scope>(
    stream: UnixStream,
    served: &'scope Served,
    scope: &'scope Scope<'scope, '_>,
    has_ended: &'scope (impl Fn() -> bool + Sync),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(Request::Check { repair: true, .. }) => {
            json!({ "error": "the pool is being served: stop its server to repair it", "code": 4 })
        }
        Ok(Request::Check { data, limit, .. }) => {
            // It takes long, and others are answered meanwhile.
            let check = move || check_served(&stream, served, data, limit, has_ended);
            return thread::Builder::new().name("check".into()).spawn_scoped(scope, check).map(drop);
        }
        Ok(request) => match request.perform(&served.pool, &served.files) {
            Ok(mut done) => {
                match request {
                    Request::Create { .. }
                    | Request::CreateFilled { .. }
                    | Request::Clone { .. }
                    | Request::Delete { .. } => {
                        served.on_change.get().into_iter().for_each(|follow| follow());
                    }
                    Request::Changes { .. } => done["uri"] = json!(served.uri.get()),
                    Request::List => add_errors(&mut done, &served.fill_errors),
                    _ => {}
                }
                json!({ "done": done })
            }
            Err(error) => refusal(&error),
        },
        Err(error) => json!({ "error": format!("not a request: {error}"), "code": FAILED }),
    };
    (&stream).write_all(format!("{answer}\n").as_bytes())
}

fn refusal(error: &PoolError) -> Value {
    json!({ "error": error.to_string(), "code": of_pool(error) })
}

fn check_served(
    mut stream: &UnixStream,
    served: &Served,
    data: bool,
    limit: Option<u64>,
    has_ended: &impl Fn() -> bool,
) {
    let answer = match scrub(&served.pool, data, limit, stream, has_ended) {
        Ok(Some(done)) => json!({ "done": done }),
        Ok(None) => json!({ "error": "the server has ended before all was checked", "code": 1 }),
        Err(error) => refusal(&error),
    };
    // The client may have left.
    drop(stream.write_all(format!("{answer}\n").as_bytes()));
}
