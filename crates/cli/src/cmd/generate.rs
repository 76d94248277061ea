//! Completions and the man page.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::fail::Done;
use crate::out::Out;

pub fn completions(args: &CompletionsArgs, out: &mut Out) -> Done {
    // Into memory first: the generator takes a closed pipe for a bug.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "threadkeep", &mut script);
    std::io::Write::write_all(&mut out.raw()?, &script)?;
    Ok(0)
}

pub fn man(out: &mut Out) -> Done {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    for sub in Cli::command().get_subcommands() {
        let man =
            clap_mangen::Man::new(sub.clone().name(format!("threadkeep {}", sub.get_name())).no_binary_name(true));
        man.render_synopsis_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    std::io::Write::write_all(&mut out.raw()?, &page)?;
    Ok(0)
}
