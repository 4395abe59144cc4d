//! Writes every page in every language to a folder:
//! `cargo run -p idp --example pages -- FOLDER [COLOUR [LOGO]]`.

use std::{error::Error, fs, path::PathBuf};

use ::pages::{Brand, BrandConfig, Languages, Shell};
use axum::body::to_bytes;
use idp::pages::{
    Account, AccountDone, AccountPaths, AttributeField, AttributeInput, Consent, ConsentRow, DeviceCode,
    DeviceConfirm, DeviceDone, DeviceProblem, ErrorKind, ErrorPage, ForgotPassword, ForgotPasswordStep, Form,
    Login, LoginProblem, Logout, LogoutDone, NewPassword, NewPasswordReason, Page, Pages, PasswordForm,
    PasswordProblem, Scope, SessionEntry, TokenRow,
};

#[path = "../src/pages/samples.rs"]
mod samples;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: pages FOLDER [COLOUR [LOGO]]")?);
    let colour = arguments.next().unwrap_or_else(|| "#2f5bd0".to_owned());
    let config = BrandConfig { name: "Example Inc.".to_owned(), logo: arguments.next(), colour };
    let brand = Brand::check(&config).map_err(|faults| format!("{faults:?}"))?;
    let shell = Shell::new(brand, Languages::default());
    let pages = Pages::new(shell.into()).map_err(|faults| format!("{faults:?}"))?;
    let sample = samples::Sample::new(samples::Texts::ordinary());
    let consents = sample.consents();
    fs::create_dir_all(&folder)?;
    for tag in pages.languages().tags() {
        let language = pages.languages().choose(Some(tag), None);
        for (name, page) in sample.pages(&consents) {
            let body = to_bytes(pages.answer(language, &page).into_body(), usize::MAX).await?;
            fs::write(folder.join(format!("{name}.{tag}.html")), body)?;
        }
    }
    Ok(())
}
