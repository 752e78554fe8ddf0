"""Who exists on a machine: the system's accounts of this one, and `ubuntu`, who may become root."""

from pathlib import Path

LAST_SYSTEM_ID = 999
NOBODY = 65534


def write_accounts(etc: Path, user_id: int, home: str) -> None:
    """Write the files of accounts below `etc`.

    Args:
        etc: of an image.
        user_id: of `ubuntu`, and of its group.
        home: of `ubuntu`.
    """
    users = [*_system_lines("passwd"), f"ubuntu:x:{user_id}:{user_id}::{home}:/bin/bash"]
    groups = [*_system_lines("group"), f"ubuntu:x:{user_id}:"]
    # `*` lets nobody in by password, and unlike `!` does not keep sshd from taking a key.
    shadow = [f"{user.split(':')[0]}:*:19000:0:99999:7:::" for user in users]
    for name, lines, mode in (
        ("passwd", users, 0o644),
        ("group", groups, 0o644),
        ("shadow", shadow, 0o640),
        ("gshadow", [f"{group.split(':')[0]}:*::" for group in groups], 0o640),
    ):
        (etc / name).write_text("".join(f"{line}\n" for line in lines))
        (etc / name).chmod(mode)
    (etc / "sudoers").write_text(
        "Defaults env_reset\nroot ALL=(ALL) ALL\nubuntu ALL=(ALL) NOPASSWD:ALL\n"
    )
    (etc / "sudoers").chmod(0o440)


def _system_lines(name: str) -> list[str]:
    lines = (Path("/etc") / name).read_text().splitlines()
    return [line for line in lines if _is_system(int(line.split(":")[2]))]


def _is_system(number: int) -> bool:
    return number <= LAST_SYSTEM_ID or number == NOBODY
