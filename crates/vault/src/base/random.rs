//! Random numbers from the operating system.

use crate::base::error::{Result, VaultError};
use format::Token;

pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut b = [0; N];
    getrandom::fill(&mut b)
        .map_err(|e| VaultError::Refused(format!("the system gives no random numbers: {e}")))?;
    Ok(b)
}

pub(crate) fn random_token() -> Result<Token> {
    Ok(Token(u64::from_le_bytes(random_bytes()?)))
}
