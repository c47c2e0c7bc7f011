"""DSPy's own tests with CellblockInterpreter where they mean its default, PythonInterpreter: `pytest -p judge_dspy`.

Those that are expected to fail are listed with the reason; one that passes all the same is a failure (strict).
"""

import dspy
import dspy.primitives.python_interpreter
import judges
from cellblock.dspy import CellblockInterpreter

OPTIONS = ["--deno"]
FILES = [
    "tests/primitives/test_python_interpreter.py", "tests/primitives/test_code_interpreter.py",
    "tests/predict/test_program_of_thought.py", "tests/predict/test_code_act.py",
]


DEFAULT = dspy.PythonInterpreter


class PythonInterpreter(CellblockInterpreter):
    """Its large values have 101 MiB."""

    def __init__(self, *args, **how):
        super().__init__(*args, **{"memory": "3G", **how})


for module in (dspy, dspy.primitives, dspy.primitives.python_interpreter):
    module.PythonInterpreter = PythonInterpreter
for kind in (dspy.RLM, dspy.ProgramOfThought, dspy.CodeAct):
    made = kind.__init__
    made.__defaults__ = tuple(PythonInterpreter if d is DEFAULT else d for d in made.__defaults__)

PRIVATE = "looks at how PythonInterpreter works with Deno and Pyodide: its process, messages, files, own methods"
KEYWORDS = "keywords of PythonInterpreter, for what Deno may read, write and reach"
WORDS = "wants PythonInterpreter's own wording of an error, or an exception's arguments as a list"
STRICT = "a tool's None stays None, as in LocalInterpreter; what is no JSON is an error, and not its text"

# By the tests of DSPy 3.3.1, with the package 3.4.1.
EXPECTED = {
    "test_allows_same_canonical_file_as_read_and_write_mount": KEYWORDS,
    "test_codeact_code_execution_failure": WORDS,
    "test_codeact_code_parse_failure": WORDS,
    "test_custom_deno_command_is_unchanged": PRIVATE,
    "test_custom_deno_command_preserves_environment": PRIVATE,
    "test_default_command_revokes_shared_cache_after_startup": PRIVATE,
    "test_default_command_uses_managed_deno_for_info_and_run": PRIVATE,
    "test_default_runner_cannot_read_shared_deno_cache": PRIVATE,
    "test_default_runner_starts_offline_from_warm_shared_cache": PRIVATE,
    "test_deno_command_dict_raises_type_error": PRIVATE,
    "test_deno_info_probe_is_bounded": PRIVATE,
    "test_enable_env_vars_flag": KEYWORDS,
    "test_enable_net_flag": KEYWORDS,
    "test_enable_read_paths_multiple_files": KEYWORDS,
    "test_enable_read_paths_symlink": KEYWORDS,
    "test_enable_write_flag": KEYWORDS,
    "test_exception_args": WORDS,
    "test_execution_instructions_are_class_metadata": PRIVATE,
    "test_explicit_deno_dir_skips_info_query": PRIVATE,
    "test_extract_parameters": PRIVATE,
    "test_extract_parameters_complex_types": PRIVATE,
    "test_failed_health_check_ends_session": PRIVATE,
    "test_guest_prototype_hook_cannot_redirect_tool_wrapper": PRIVATE,
    "test_id_less_protocol_errors_are_terminal": PRIVATE,
    "test_interpreter_security_filesystem_access": PRIVATE,
    "test_json_mode_coercion_preserves_existing_fallbacks": PRIVATE,
    "test_json_mode_values_cross_every_host_to_sandbox_path": PRIVATE,
    "test_large_variable_threshold_boundary": PRIVATE,
    "test_out_of_band_messages_are_skipped_not_consumed_as_responses": PRIVATE,
    "test_pot_evaluate_creates_one_interpreter_per_example": PRIVATE,
    "test_process_death_ends_stateful_session": PRIVATE,
    "test_protocol_failure_ends_session": PRIVATE,
    "test_pydantic_json_values_are_compatible_with_large_variable_injection": PRIVATE,
    "test_read_file_access_control": KEYWORDS,
    "test_rejects_alias_basename_colliding_with_another_file": KEYWORDS,
    "test_rejects_mounts_with_the_same_guest_basename": KEYWORDS,
    "test_rejects_write_paths_overlapping_runtime_files": KEYWORDS,
    "test_request_ids_are_128_bit_random_values": PRIVATE,
    "test_small_variable_not_using_filesystem": PRIVATE,
    "test_tool_cannot_reenter_same_interpreter": WORDS,
    "test_tool_returning_nan_falls_back_to_string": STRICT,
    "test_tool_returning_non_json_serializable": STRICT,
    "test_tool_returning_none": STRICT,
    "test_tool_returns_dataclass_with_unserializable_field_falls_back": STRICT,
    "test_unserializable_pydantic_variable_raises_code_interpreter_error": PRIVATE,
}


def pytest_collection_modifyitems(items):
    judges.expect(items, EXPECTED)
