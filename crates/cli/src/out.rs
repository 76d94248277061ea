//! Writing answers: to standard output for what was asked, to standard error for what should be known beside it.

use std::io::{self, BufWriter, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// Standard output, buffered, coloured only where a person looks at it.
pub struct Out {
    inner: BufWriter<Box<dyn Write>>,
    json: bool,
    terminal: bool,
}

impl Out {
    pub fn stdout(json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        // The stream decides by terminal, NO_COLOR and CLICOLOR whether styles are kept.
        // JSON goes out byte for byte: taking styles out would also take bytes of its texts.
        let stream: Box<dyn Write> =
            if json { Box::new(stdout.lock()) } else { Box::new(anstream::AutoStream::auto(stdout.lock())) };
        Self { inner: BufWriter::with_capacity(64 << 10, stream), json, terminal }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Columns to use: the terminal's; none in a pipe, where nothing is cut to fit.
    pub fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        Some(terminal_size::terminal_size().map_or(100, |(w, _)| usize::from(w.0)).max(40))
    }

    /// One JSON value on a line.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        self.line(&text)
    }

    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.inner.write_all(text.as_bytes())?;
        self.inner.write_all(b"\n")
    }

    /// Bytes as they are.
    pub fn raw(&mut self) -> io::Result<impl Write + '_> {
        self.inner.flush()?;
        Ok(io::stdout())
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// Writes everything out, and lets whoever reads it through a pipe see its end while this process goes on.
    pub fn close(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        #[cfg(unix)]
        if !self.terminal {
            let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nowhere)?;
        }
        Ok(())
    }

    pub fn finish(&mut self) -> Result<(), crate::fail::Failure> {
        Ok(self.inner.flush()?)
    }
}

/// Something that should be known, to standard error.
pub fn say(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

pub fn dim(text: &str) -> String {
    paint(Style::new().dimmed(), text)
}

pub fn bold(text: &str) -> String {
    paint(Style::new().bold(), text)
}

pub fn colour(colour: AnsiColor, text: &str) -> String {
    paint(Style::new().fg_color(Some(colour.into())), text)
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
