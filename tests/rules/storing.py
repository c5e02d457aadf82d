"""
Stores, catalogs and leases: what is durable, what is exclusive, and whose word counts for where files lie.
"""

import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from bookkeeper.catalogs.handed_out import HandedOut
from bookkeeper.leases.object_lease import PutLease
from bookkeeper.stores.beneath import open_in
from bookkeeper.stores.handed_out import TableKeys
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.open import keys_of
from tests.rules.rule import Chapter, Patch, breaks, put, set_value
from tests.rules.systems import Fails

rule = Chapter()
LOCAL = "tests/stores/test_local.py::"
LINKS = "tests/stores/test_links.py::"
HANDED = "tests/catalogs/test_handed_out.py::"
TOKENS = "tests/catalogs/test_handed_out_tokens.py::"
CONTRACT = "tests/stores/test_store_contract.py::"
LEASE = "tests/leases/test_lease_contract.py::"
KEYS = "tests/stores/test_handed_out.py::"
PUT_LEASE = "tests/leases/test_put_lease.py::"


@rule(
    "A local file is durable before it gets its name.",
    Fails(f"{LOCAL}test_bytes_are_durable_before_their_name_and_the_name_before_it_returns"),
)
@breaks("bookkeeper.stores.disk.write_durably")
def names_before_bytes(rightly: Any, folder: int, name: str, path: str, data: Any) -> None:
    """A file has its name before its bytes are on the disk."""
    with open(name, "wb", opener=lambda name, flags: open_in(folder, name, flags, path)) as file:
        file.write(data)


@rule(
    "A name is durable before its create returns, also where the create finds it taken.",
    Fails(f"{LOCAL}test_bytes_are_durable_before_their_name_and_the_name_before_it_returns"),
    Fails(f"{LOCAL}test_a_writer_that_finds_its_own_bytes_may_rely_on_them"),
)
@breaks("bookkeeper.stores.disk.link")
def names_are_not_synced(rightly: Any, folder: int, source: str, name: str) -> None:
    """A power cut takes names of files back that were published."""
    os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder)


@rule(
    "A create is exclusive: of many, one wins.",
    Fails(f"{CONTRACT}test_of_many_that_create_at_once_exactly_one_wins"),
)
@breaks("bookkeeper.stores.disk.link")
def creates_overwrite(rightly: Any, folder: int, source: str, name: str) -> None:
    """A file gets its name whatever has it already."""
    os.rename(source, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.close(os.open(source, os.O_CREAT, dir_fd=folder))  # which the store deletes


@rule(
    "A replace with a tag replaces only the version that has it.",
    Fails(f"{CONTRACT}test_replace_with_the_tag_of_another_version_changes_nothing"),
    Fails(f"{CONTRACT}test_a_counter_that_many_increment_by_tag_loses_nothing", timed=True),
)
@breaks("bookkeeper.stores.local.LocalStore._expect")
def tags_are_not_compared(rightly: Any, store: LocalStore, key: str, if_match: Any) -> None:
    """Any version is replaced."""


@rule(
    "Where the root of a store is missing, nothing is known to be missing below it: a disk may not be mounted.",
    Fails(f"{LOCAL}test_a_missing_root_is_trouble_and_no_proof_that_something_was_deleted"),
)
@breaks("bookkeeper.stores.local.LocalStore._check_root")
def a_missing_root_is_empty(rightly: Any, store: LocalStore) -> None:
    """Below a root that is not there nothing is there."""


@rule(
    "A root that vanished is not made again by a write: its disk may come back.",
    Fails(f"{LOCAL}test_a_root_that_vanished_is_not_made_again_by_a_write"),
)
@breaks("bookkeeper.stores.local.LocalStore._writing")
def vanished_roots_are_made_again(rightly: Any, store: LocalStore, key: str) -> Any:
    """A write makes whatever folders it needs."""
    store._rooted = False
    return rightly(store, key)


@rule(
    "No symbolic link below the root of a store is followed: what lies elsewhere is neither read nor deleted.",
    Fails(f"{LINKS}test_nothing_is_read_through_a_link_and_the_link_is_named"),
    Fails(f"{LINKS}test_nothing_is_deleted_or_listed_behind_a_link"),
    Fails(f"{LINKS}test_no_write_goes_through_a_link"),
    Fails(f"{LINKS}test_a_lease_is_not_taken_through_a_link"),
    Fails(
        "tests/tick/test_linked_folders.py::test_a_txlog_that_names_a_file_through_a_link_is_rejected_and_the_others_get_in"
    ),
    Fails("tests/tick/test_linked_folders.py::test_retention_and_expiry_of_such_a_file_do_not_delete_it"),
    Fails(
        "tests/stores/test_beneath.py::test_a_link_that_is_swapped_in_and_out_all_the_time_never_leads_anywhere",
        timed=True,
    ),
)
def links_are_followed(patch: Patch) -> None:
    """The kernel resolves links, and so does the walk through the folders."""
    for module in ("beneath", "disk"):
        put(patch, f"bookkeeper.stores.{module}.open_in", _open_through)
    set_value(patch, "bookkeeper.stores.beneath._RESOLVE_NO_SYMLINKS", 0)


def _open_through(rightly: Any, folder: int, name: str, flags: int, path: str, mode: int = 0o666) -> int:
    return os.open(name, flags, mode, dir_fd=folder)


@rule(
    "A folder that is a link is trouble of the table and of no file: no txlog is rejected for it.",
    Fails(f"{LINKS}test_a_data_folder_that_is_a_link_is_trouble_of_the_table_and_of_no_file"),
    Fails(f"{LINKS}test_a_folder_of_a_txlog_folder_that_is_a_link_is_trouble_and_condemns_nothing"),
)
@breaks("bookkeeper.stores.local.LocalStore._refused")
def links_condemn_files(rightly: Any, store: LocalStore, path: str, link: str) -> Any:
    """A file behind a link is at fault, wherever the link is."""
    places, store._places = store._places, ()
    try:
        return rightly(store, path, link)
    finally:
        store._places = places


@rule(
    "How files are reached the catalog's configuration says: a table's properties get no keys, and import nothing.",
    Fails("tests/catalogs/test_file_io.py::test_a_tables_properties_say_nothing_of_how_its_files_are_reached"),
    Fails(
        "tests/catalogs/test_file_io.py::test_what_a_rest_server_says_of_a_table_counts_and_the_tables_properties_do_not"
    ),
)
@breaks("bookkeeper.catalogs.open.ignore_table_properties")
def tables_say_where_files_are(rightly: Any, catalog: Any) -> None:
    """A table's properties are added to the catalog's."""


@rule(
    "A lease is held by one process at a time.",
    Fails(f"{LEASE}test_one_at_a_time_has_it_and_keeps_it"),
    Fails(f"{LEASE}test_a_clock_put_back_does_not_hurry_a_take_over"),
)
@breaks("bookkeeper.leases.object_lease.PutLease._is_silent")
def leases_are_taken_at_once(rightly: Any, lease: PutLease, tag: str, now: datetime) -> bool:
    """A holder counts as silent."""
    return True


@rule(
    "How old a lease is when a process first sees it, the storage tells: else each new process waits anew.",
    Fails(f"{PUT_LEASE}test_a_process_that_finds_a_lease_which_nobody_renewed_takes_it_at_once"),
    Fails(f"{PUT_LEASE}test_a_reaper_that_was_killed_in_a_run_is_followed_by_the_next_run"),
)
@breaks("bookkeeper.leases.object_lease.PutLease._age")
def leases_are_new_when_seen(rightly: Any, lease: PutLease) -> timedelta:
    """A lease is as old as it is known."""
    return timedelta(0)


@rule(
    "A lease whose holder is silent is taken over.",
    Fails(f"{LEASE}test_a_clock_put_back_does_not_hurry_a_take_over"),
    Fails(f"{LEASE}test_an_unreadable_lease_is_waited_for_and_taken"),
)
@breaks("bookkeeper.leases.object_lease.PutLease._is_silent")
def leases_of_the_dead_are_kept(rightly: Any, lease: PutLease, tag: str, now: datetime) -> bool:
    """A lease is its holder's for ever."""
    return False


@rule(
    "Keys that a catalog handed out are renewed at half of their life, and are not used after their end.",
    Fails(f"{KEYS}test_the_catalog_is_asked_at_half_of_the_life_and_a_little_earlier_by_others"),
    Fails(f"{KEYS}test_while_the_catalog_is_away_keys_are_used_until_they_end_and_not_longer"),
)
@breaks("bookkeeper.stores.handed_out.TableKeys.fresh")
def keys_are_used_for_ever(rightly: Any, keys: TableKeys, url: str) -> Any:
    """Keys are used as they came with the table."""
    return keys.at(url)


@rule(
    "A path has the keys of the longest prefix that the catalog handed out.",
    Fails(f"{KEYS}test_the_longest_prefix_counts_and_no_key_is_shown"),
)
@breaks("bookkeeper.stores.handed_out.TableKeys.at")
def any_prefix_will_do(rightly: Any, keys: TableKeys, url: str) -> Any:
    """The shortest prefix is taken."""
    return next((one for one in reversed(keys._keys) if url.startswith(one.prefix)), None)


@rule(
    "Where a catalog hands out keys, none of the configuration are sent.",
    Fails("tests/catalogs/test_handed_out.py::test_an_answer_replaces_all_secrets_of_the_configuration"),
)
@breaks("bookkeeper.catalogs.handed_out.without_secrets")
def keys_are_mixed(rightly: Any, prefix: str, bucket: str, options: Any) -> Any:
    """What the answer does not name comes from the configuration, secrets too."""
    return keys_of(prefix, bucket, options)


@rule(
    "A client signs each request with the token of its prefix as it is then: of Azure and of Google too.",
    Fails(f"{TOKENS}test_a_table_that_is_held_for_long_is_read_and_written_with_tokens_that_are_good"),
    Fails(f"{TOKENS}test_moves_deletes_and_listings_go_with_the_token_of_their_path"),
)
@breaks("bookkeeper.stores.handed_out_remote._now")
def clients_keep_their_first_token(rightly: Any, ring: TableKeys, prefix: str) -> Any:
    """A client goes on with what it was made with."""
    return _FIRST.setdefault((ring, prefix), rightly(ring, prefix))


_FIRST: dict[Any, Any] = {}


@rule(
    "A request that the storage refuses is sent once more, with new keys.",
    Fails(f"{HANDED}test_keys_that_are_refused_before_they_should_end_are_renewed_once"),
    Fails(f"{HANDED}test_a_read_by_pyiceberg_is_repeated_once_where_its_keys_were_refused"),
    Fails(f"{TOKENS}test_tokens_that_are_refused_before_they_should_end_are_renewed_once"),
)
@breaks("bookkeeper.stores.handed_out.TableKeys.fresh_after_refusal")
def refusals_are_final(rightly: Any, keys: TableKeys, url: str, used: Any) -> bool:
    """A refusal ends the request."""
    return False


@rule(
    "No account of Azure gets the SAS token of another.",
    Fails(f"{TOKENS}test_no_account_gets_the_token_of_another"),
)
@breaks("bookkeeper.catalogs.storage_credentials._said")
def any_account_will_do(rightly: Any, key: str, host: str, told: Any) -> Any:
    """The first token of the answer is taken."""
    return (value for name, value in told.items() if name.startswith(key))


@rule(
    "Keys beside the config of an answer go before those in it.",
    Fails(f"{HANDED}test_keys_beside_the_config_go_before_those_in_it"),
)
@breaks("bookkeeper.catalogs.handed_out.HandedOut._by_prefix")
def config_goes_first(rightly: Any, held: HandedOut, places: Any, config: Any, credentials: Any) -> Any:
    """Keys in the config count wherever the table's files lie."""
    return {**rightly(held, places, config, credentials), **rightly(held, places, config, ())}


@rule(
    "Keys alone are only taken where they are for the same prefixes as before; else the table is loaded.",
    Fails(f"{HANDED}test_where_keys_alone_do_not_come_the_table_is_loaded"),
)
@breaks("bookkeeper.catalogs.handed_out.HandedOut._take_alone")
def part_of_the_keys_is_enough(rightly: Any, held: HandedOut, table: Any) -> bool:
    """What is asked for alone counts as answered."""
    with suppress(Exception):
        rightly(held, table)
    return True


@rule(
    "No log shows keys that a catalog handed out, at any level.",
    Fails(f"{HANDED}test_ticks_retention_the_reaper_a_consumer_go_on_across_renewals"),
)
@breaks("bookkeeper.stores.s3._is_no_detail")
def details_are_logged(rightly: Any, record: Any) -> bool:
    """What libraries log at DEBUG is let through."""
    return True
