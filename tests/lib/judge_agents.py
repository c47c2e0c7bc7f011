"""The OpenAI Agents SDK's own tests of sessions with ours where they mean UnixLocal's: `pytest -p judge_agents`.

Those that are expected to fail are listed with the reason; one that passes all the same is a failure (strict).
"""

import agents.sandbox.sandboxes
import agents.sandbox.sandboxes.unix_local
import cellblock.openai_agents as ours
import judges

OPTIONS = []
FILES = [
    f"tests/sandbox/{name}"
    for name in (
        "integration_tests", "test_session_manager.py", "test_exposed_ports.py", "test_run_cwd.py",
        "test_posix_tool_paths.py", "capabilities/test_filesystem_capability.py", "test_extract.py", "test_snapshot.py",
    )
]


class State(ours.CellblockSandboxSessionState):
    sandbox_id: str = ""


class Session(ours.CellblockSandboxSession):
    """As UnixLocal's, which can be made without a client."""

    def __init__(self, *, state, sandbox=None):
        super().__init__(state=state, sandbox=sandbox or ours.CellblockSandboxClient()._new(state))

    @classmethod
    def from_state(cls, state):
        return cls(state=state)


for module in (agents.sandbox.sandboxes, agents.sandbox.sandboxes.unix_local):
    module.UnixLocalSandboxClient = ours.CellblockSandboxClient
    module.UnixLocalSandboxClientOptions = ours.CellblockSandboxClientOptions
    module.UnixLocalSandboxSession = Session
    module.UnixLocalSandboxSessionState = State

HOST = "the workspace of UnixLocal is a folder of the host, where the test itself puts and finds files"
PORTS = "sandboxes have no ports: nothing of them can be reached from outside"
GIT = "has UnixLocal's git clone from a server that a test stands in for"
WORDS = "wants UnixLocal's own wording of an error"
VERSION = "of 0.22: the package, 0.24, does it in another way"

# By the tests of openai-agents-python 0.22, with the package 0.24.
EXPECTED = {
    "test_extract_archive_limits_none_disables_only_selected_limits": HOST,
    "test_extract_archive_limits_object_with_all_none_overrides_session_default": HOST,
    "test_extract_archive_limits_per_call_override_session_default": HOST,
    "test_extract_default_archive_limits_none_preserves_no_resource_limit_behavior": HOST,
    "test_extract_tar_rejects_symlinked_parent_paths": HOST,
    "test_extract_tar_writes_archive_and_unpacks_contents": HOST,
    "test_extract_zip_rejects_symlinked_parent_paths": HOST,
    "test_extract_zip_writes_archive_and_unpacks_contents": HOST,
    "test_non_noop_snapshot_stop_records_snapshot_fingerprint": VERSION,
    "test_runner_preserves_unix_local_lifecycle_state_across_pause_and_resume": GIT,
    "test_shell_workdir_normalizes_backslashes_as_sandbox_separators": VERSION,
    "test_shell_workdir_normalizes_backslashes_before_unix_local_resolution": VERSION,
    "test_unix_local_helpers_reject_symlink_escape_paths": HOST,
    "test_unix_local_hydrate_workspace_rejects_external_symlink_targets": WORDS,
    "test_unix_local_persist_workspace_excludes_resolved_mount_path": HOST,
    "test_unix_local_resolve_exposed_port_rejects_undeclared_ports": PORTS,
    "test_unix_local_resolve_exposed_port_uses_wrapper_and_normalizes_state": PORTS,
    "test_unix_local_write_accepts_chunked_non_seekable_binary_stream": HOST,
}


def pytest_collection_modifyitems(items):
    judges.expect(items, EXPECTED)
