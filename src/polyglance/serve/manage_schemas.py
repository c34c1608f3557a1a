"""Request and response schemas of the endpoints for adding folders."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from polyglance.serve.schemas import Integer


class FolderPath(BaseModel):
    """A folder of the machine."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=4000, description="Absolute path.")


class DirectoriesQuery(BaseModel):
    """Which folders of the machine to list."""

    model_config = ConfigDict(extra="forbid")

    path: str | None = Field(
        None, min_length=1, max_length=4000, description="Absolute path; default: the home folder."
    )


class Watching(BaseModel):
    """Whether folders are watched for new files."""

    model_config = ConfigDict(extra="forbid")

    watching: bool


class UnreadableQuery(BaseModel):
    """A page of the files that could not be read."""

    model_config = ConfigDict(extra="forbid")

    offset: Integer = Field(0, ge=0, lt=2**31)
    limit: Integer = Field(100, ge=1, le=500)


class WatchedFolder(BaseModel):
    """A folder of the library."""

    path: str
    folder: str = Field(description="Its display name, as in filters.")
    files: int
    exists: bool
    confirmed: bool = Field(description="Whether its files are scanned and served.")


class WatchedFolders(BaseModel):
    """The folders of the library."""

    folders: list[WatchedFolder]
    watching: bool = Field(description="Whether new files are indexed without a scan.")


class Directory(BaseModel):
    """A folder of the machine."""

    name: str
    path: str


class Directories(BaseModel):
    """The folders in a folder of the machine, hidden ones left out."""

    path: str
    parent: str | None
    directories: list[Directory]
    suggestions: list[Directory] = Field(description="Folders that usually hold pictures.")


class ScanStatus(BaseModel):
    """A scan that runs, or the last one."""

    id: int = Field(description="Rises with every scan; 0 before the first.")
    state: Literal["idle", "scanning", "done", "stopped", "failed"]
    done: int = Field(description="Files done.")
    total: int | None = Field(description="Files found, once they were counted.")
    added: int
    changed: int
    moved: int
    removed: int
    unchanged: int
    unreadable: int
    started: datetime | None
    finished: datetime | None
    error: str | None


class UnreadableFile(BaseModel):
    """A file that could not be read."""

    name: str
    folder: str = Field(description="Display name of its folder.")
    path: str
    reason: str


class UnreadableFiles(BaseModel):
    """Files that could not be read, ordered by path."""

    total: int
    files: list[UnreadableFile]
