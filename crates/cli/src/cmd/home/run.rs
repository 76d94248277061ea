//! `threadkeep home run`: a command in a prepared home, which holds the home and its store as long as it lives.

use std::process::{Child, Command, ExitStatus};

use threadkeep_agent_home::reservation::PATIENCE;
use threadkeep_agent_home::run::Running;

use super::args::RunArgs;
use crate::cmd::now;
use crate::fail::{Done, Failure, Kind};
use crate::out::{Out, say};

pub fn run(args: &RunArgs, _out: &mut Out) -> Done {
    let running = Running::enter(&args.task_home, &args.place.shared_path()?, now(), PATIENCE)?;
    // The child keeps the locks when this process is killed: an agent that is left over is still an agent.
    running.inherit()?;
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::new(Kind::Usage, "no command is given"));
    };
    let home = std::path::absolute(&args.task_home).unwrap_or_else(|_| args.task_home.clone());
    let mut command = Command::new(program);
    command.args(arguments).env("CODEX_HOME", home).env_remove("CODEX_SQLITE_HOME");
    let signals = Signals::listen()?;
    let child = command.spawn().map_err(|e| {
        let kind = if e.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Failed };
        Failure::new(kind, format!("cannot start {}: {e}", program.to_string_lossy()))
    })?;
    let status = signals.wait(child)?;
    match running.leave(now()) {
        Ok(told) => told.iter().for_each(|t| say(&format!("threadkeep: {t}"))),
        // What the command did is done; its end is what the caller asked for.
        Err(e) => say(&format!("threadkeep: names could not be saved: {e}")),
    }
    Ok(code(status))
}

/// Signals that are for the command. Listened to before it starts, so that none ends this process and leaves it alone.
#[cfg(unix)]
struct Signals(signal_hook::iterator::Signals);

#[cfg(unix)]
impl Signals {
    fn listen() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]);
        signals.map(Self).map_err(|e| Failure::new(Kind::Failed, format!("cannot listen to signals: {e}")))
    }

    fn wait(mut self, mut child: Child) -> Result<ExitStatus, Failure> {
        let pid = i32::try_from(child.id()).unwrap_or(0);
        let handle = self.0.handle();
        let forwarder = std::thread::spawn(move || {
            for signal in self.0.forever() {
                // A terminal gives an interrupt to the whole group, the command included.
                if signal != signal_hook::consts::SIGINT
                    && let (Some(pid), Some(signal)) =
                        (rustix::process::Pid::from_raw(pid), rustix::process::Signal::from_named_raw(signal))
                {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        });
        let status = child.wait().map_err(cannot_wait);
        handle.close();
        let _ = forwarder.join();
        status
    }
}

/// Nothing is listened to here.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> Result<Self, Failure> {
        Ok(Self)
    }

    fn wait(self, mut child: Child) -> Result<ExitStatus, Failure> {
        child.wait().map_err(cannot_wait)
    }
}

fn cannot_wait(e: std::io::Error) -> Failure {
    Failure::new(Kind::Failed, format!("cannot wait for the command: {e}"))
}

/// As a shell says it: the command's own code, or 128 and the signal that ended it.
#[cfg(unix)]
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s));
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(255)
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(255)
}
