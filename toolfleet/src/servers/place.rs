//! The folder of a cluster, and the user who runs it.
//!
//! Postgres refuses to run as root, so root's clusters belong to another user, who must be able to reach them. Below a folder
//! that this user may not enter (`/root`), the cluster is put into `/var/tmp`, and a link takes its place.

use std::{
    fs::{self, DirBuilder, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, User, chown, geteuid};
use sha2::{Digest, Sha256};

use super::error::ServerError;

/// The real place of one cluster.
#[derive(Debug, Clone)]
pub struct Place {
    /// The data folder, absolute, links resolved.
    pub folder: PathBuf,
    /// The user who must run the server; `None`: this user.
    pub owner: Option<Owner>,
    /// A note for the person.
    pub note: Option<String>,
    /// The folder has a cluster that no link points to any more.
    pub abandoned: bool,
}

/// The user who runs a server for root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The user's id.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
}

impl Place {
    /// The place of the cluster that the person calls `data`; creates the folder above it.
    ///
    /// # Errors
    ///
    /// A folder cannot be created, or belongs to another user.
    pub fn of(data: &Path) -> Result<Self, ServerError> {
        let at = |what: &str| format!("{what} {}", data.display());
        let data =
            std::path::absolute(data).map_err(ServerError::prepare(at("find the folder")))?;
        let (Some(parent), Some(name)) = (data.parent(), data.file_name()) else {
            return Err(ServerError::Data(format!(
                "{} cannot be a data folder",
                data.display()
            )));
        };
        fs::create_dir_all(parent).map_err(ServerError::prepare(at("create the folder above")))?;
        let parent = parent
            .canonicalize()
            .map_err(ServerError::prepare(at("resolve the folder above")))?;
        let data = parent.join(name);

        let stays = |folder: &Path, owner| Self {
            folder: folder.into(),
            owner,
            note: None,
            abandoned: false,
        };
        let link = fs::read_link(&data).ok().map(|target| parent.join(target));
        let existing = fs::metadata(&data).ok();
        if !geteuid().is_root() {
            return Ok(stays(&link.unwrap_or(data), None));
        }
        let owner = match existing.as_ref().filter(|found| found.uid() != 0) {
            Some(found) => Owner {
                uid: found.uid(),
                gid: found.gid(),
            },
            None => servant()?,
        };
        match link {
            // An existing cluster stays where it is: the owner of its folder runs it.
            Some(target) if existing.is_some() => Ok(stays(&target, Some(owner))),
            Some(_) => moved(
                &data,
                owner,
                "; the old one is gone from there, so it begins empty",
            ),
            None if reaches(&parent, &owner) => Ok(stays(&data, Some(owner))),
            None => moved(&data, owner, ""),
        }
    }

    /// Creates a folder for the server, that no other user can read.
    pub(crate) fn create(&self, folder: &Path) -> Result<(), ServerError> {
        let doing = || ServerError::prepare(format!("create {}", folder.display()));
        DirBuilder::new()
            .mode(0o700)
            .create(folder)
            .map_err(doing())?;
        self.give(folder).map_err(doing())
    }

    /// Gives a file or folder to the server's user.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        match &self.owner {
            Some(owner) => Ok(chown(
                path,
                Some(Uid::from_raw(owner.uid)),
                Some(Gid::from_raw(owner.gid)),
            )?),
            None => Ok(()),
        }
    }
}

/// The user who runs Postgres for root.
fn servant() -> Result<Owner, ServerError> {
    let known = ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| User::from_name(name).ok().flatten());
    let known = known.filter(|user| !user.uid.is_root());
    known.map(|user| Owner { uid: user.uid.as_raw(), gid: user.gid.as_raw() }).ok_or_else(|| {
        ServerError::Data(
            "Postgres does not run as root, and this machine has neither a user `postgres` nor `nobody`: \
             add one, or run as another user"
                .to_owned(),
        )
    })
}

/// Whether the user may go through this folder and every one above it.
fn reaches(folder: &Path, owner: &Owner) -> bool {
    folder
        .ancestors()
        .all(|above| fs::metadata(above).is_ok_and(|found| enters(&found, owner)))
}

fn enters(folder: &Metadata, owner: &Owner) -> bool {
    let class = if folder.uid() == owner.uid {
        0o100
    } else if folder.gid() == owner.gid {
        0o010
    } else {
        0o001
    };
    folder.mode() & class != 0
}

/// The place in `/var/tmp`, private to the user, with the link to it.
fn moved(data: &Path, owner: Owner, also: &str) -> Result<Place, ServerError> {
    let hash = Sha256::digest(data.as_os_str().as_encoded_bytes());
    let short: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let shared = Path::new("/var/tmp");
    let home = shared
        .canonicalize()
        .unwrap_or_else(|_| shared.into())
        .join(format!("toolfleet-{short}"));
    let folder = home.join("postgres");
    let note = format!(
        "Postgres cannot run as root and its user cannot enter {}: the cluster is in {}{also}",
        data.display(),
        folder.display()
    );
    let place = Place {
        abandoned: folder.exists(),
        folder,
        owner: Some(owner.clone()),
        note: Some(note),
    };
    match fs::symlink_metadata(&home) {
        // Every user may write to /var/tmp: only a folder that was made here before is ours.
        Ok(found) if found.is_dir() && (found.uid() == owner.uid || found.uid() == 0) => {
            place
                .give(&home)
                .map_err(ServerError::prepare(format!("take {}", home.display())))?;
        }
        Ok(_) => {
            let problem = format!(
                "{} belongs to another user: remove it, or use another data folder",
                home.display()
            );
            return Err(ServerError::Data(problem));
        }
        Err(_) => place.create(&home)?,
    }
    let link = || -> io::Result<()> {
        if fs::symlink_metadata(data).is_ok_and(|found| found.is_symlink()) {
            fs::remove_file(data)?;
        }
        symlink(&place.folder, data)
    };
    link().map_err(ServerError::prepare(format!(
        "link {} to {}",
        data.display(),
        place.folder.display()
    )))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_user_passes_by_his_own_class_of_permission() {
        let folder = tempfile::tempdir().unwrap();
        let mine = fs::metadata(folder.path()).unwrap();
        let me = Owner {
            uid: mine.uid(),
            gid: mine.gid(),
        };
        let stranger = Owner {
            uid: mine.uid() + 1,
            gid: mine.gid() + 1,
        };
        for (mode, owner, others) in [
            (0o700, true, false),
            (0o701, true, true),
            (0o071, false, true),
        ] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let found = fs::metadata(folder.path()).unwrap();
            assert_eq!(
                (enters(&found, &me), enters(&found, &stranger)),
                (owner, others),
                "{mode:o}"
            );
        }
    }
}
