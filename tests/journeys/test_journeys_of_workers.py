"""Journeys of one process that hold for several workers, too: the most telling of them, once more.

`WORKERS=2 python -m pytest tests/journeys` has all others meet them; a few of those are about one process.
"""

import pytest

from tests.journeys.test_cancel import (
    test_cancelled_requests_never_poison_the_pool,
    test_departed_client_leaves_other_streams_alone,
)
from tests.journeys.test_cors import test_streams_can_be_read
from tests.journeys.test_counters import (
    test_burst_is_spread_although_gauges_lag,
    test_counts_settle_when_connections_are_refused,
    test_nothing_but_an_ending_changes_a_count,
    test_replica_that_restarts_attracts_no_more_than_its_share,
    test_replica_that_was_removed_and_added_begins_at_zero,
)
from tests.journeys.test_decisions import (
    test_a_decision_is_found_by_the_request_id_of_the_client,
    test_a_request_without_an_id_is_found_by_the_one_it_was_given,
    test_the_latest_are_listed,
)
from tests.journeys.test_ejection import (
    test_a_replica_that_hangs_is_set_aside_and_the_others_do_not_notice,
    test_clients_that_leave_are_not_held_against_a_replica,
    test_half_of_a_pool_is_not_ejected,
    test_the_only_replica_is_not_ejected,
)
from tests.journeys.test_fairness import (
    test_a_burst_of_impatient_clients_leaves_all_room_free,
    test_a_flood_of_one_key_does_not_delay_another,
    test_departures_of_a_flood_cost_the_others_nothing,
    test_shares_give_a_caller_more_turns,
    test_the_most_urgent_go_first,
)
from tests.journeys.test_health import (
    test_a_crash_ends_its_own_streams_and_nothing_else,
    test_a_replica_that_does_nothing_is_taken_out_for_late_probes,
)
from tests.journeys.test_keys import test_refusals_are_counted_and_the_connection_serves_on
from tests.journeys.test_limits import (
    test_many_unfinished_requests_do_not_disturb_traffic,
    test_silence_inside_a_stream_ends_it,
)
from tests.journeys.test_operator import (
    test_gauges_exist_at_zero,
    test_ledger_shows_every_stage_at_once,
    test_metrics_page_is_the_same_on_both_doors,
    test_replicas_are_listed_with_what_is_known,
    test_times_and_tokens_are_counted,
    test_views_are_whole_while_requests_come_and_go,
)
from tests.journeys.test_operator_cancel import (
    test_a_cancelled_stream_says_so_and_does_not_end_well,
    test_others_are_not_touched,
)
from tests.journeys.test_queue import (
    test_full_pool_does_not_hold_up_another,
    test_full_queue_is_a_429,
    test_limit_of_one_replica_is_its_own,
    test_models_of_one_replica_share_its_room,
    test_slot_is_free_only_after_the_last_byte,
    test_waiting_too_long_is_a_503,
    test_wave_of_impatient_clients_leaves_the_queue_working,
    test_who_waits_is_served_by_the_replica_that_takes_over_the_model,
)
from tests.journeys.test_retry import (
    test_dying_replica_takes_only_its_own_streams,
    test_retry_keeps_the_body_whole,
)
from tests.journeys.test_stall import test_an_engine_whose_tokens_flow_is_not_frozen
from tests.journeys.test_stored_responses import (
    test_a_response_whose_owner_was_removed_is_gone,
    test_an_owner_that_is_down_is_not_replaced,
    test_every_follow_up_meets_the_owner,
    test_who_waits_for_an_owner_that_leaves_is_told_at_once,
)
from tests.journeys.test_uploads import (
    test_client_that_leaves_while_its_upload_is_queued_is_noticed,
    test_spooled_upload_is_sent_again,
)
from tests.journeys.test_websocket import (
    test_frames_pass_both_ways_intact_and_in_order,
    test_operator_can_end_a_session,
)

__all__ = [
    "test_a_burst_of_impatient_clients_leaves_all_room_free",
    "test_a_cancelled_stream_says_so_and_does_not_end_well",
    "test_a_crash_ends_its_own_streams_and_nothing_else",
    "test_a_decision_is_found_by_the_request_id_of_the_client",
    "test_a_flood_of_one_key_does_not_delay_another",
    "test_a_replica_that_does_nothing_is_taken_out_for_late_probes",
    "test_a_replica_that_hangs_is_set_aside_and_the_others_do_not_notice",
    "test_a_request_without_an_id_is_found_by_the_one_it_was_given",
    "test_a_response_whose_owner_was_removed_is_gone",
    "test_an_engine_whose_tokens_flow_is_not_frozen",
    "test_an_owner_that_is_down_is_not_replaced",
    "test_burst_is_spread_although_gauges_lag",
    "test_cancelled_requests_never_poison_the_pool",
    "test_client_that_leaves_while_its_upload_is_queued_is_noticed",
    "test_clients_that_leave_are_not_held_against_a_replica",
    "test_counts_settle_when_connections_are_refused",
    "test_departed_client_leaves_other_streams_alone",
    "test_departures_of_a_flood_cost_the_others_nothing",
    "test_dying_replica_takes_only_its_own_streams",
    "test_every_follow_up_meets_the_owner",
    "test_frames_pass_both_ways_intact_and_in_order",
    "test_full_pool_does_not_hold_up_another",
    "test_full_queue_is_a_429",
    "test_gauges_exist_at_zero",
    "test_half_of_a_pool_is_not_ejected",
    "test_ledger_shows_every_stage_at_once",
    "test_limit_of_one_replica_is_its_own",
    "test_many_unfinished_requests_do_not_disturb_traffic",
    "test_metrics_page_is_the_same_on_both_doors",
    "test_models_of_one_replica_share_its_room",
    "test_nothing_but_an_ending_changes_a_count",
    "test_operator_can_end_a_session",
    "test_others_are_not_touched",
    "test_refusals_are_counted_and_the_connection_serves_on",
    "test_replica_that_restarts_attracts_no_more_than_its_share",
    "test_replica_that_was_removed_and_added_begins_at_zero",
    "test_replicas_are_listed_with_what_is_known",
    "test_retry_keeps_the_body_whole",
    "test_shares_give_a_caller_more_turns",
    "test_silence_inside_a_stream_ends_it",
    "test_slot_is_free_only_after_the_last_byte",
    "test_spooled_upload_is_sent_again",
    "test_streams_can_be_read",
    "test_the_latest_are_listed",
    "test_the_most_urgent_go_first",
    "test_the_only_replica_is_not_ejected",
    "test_times_and_tokens_are_counted",
    "test_views_are_whole_while_requests_come_and_go",
    "test_waiting_too_long_is_a_503",
    "test_wave_of_impatient_clients_leaves_the_queue_working",
    "test_who_waits_for_an_owner_that_leaves_is_told_at_once",
    "test_who_waits_is_served_by_the_replica_that_takes_over_the_model",
]


@pytest.fixture
def workers() -> int:
    """How many processes the router of each journey has."""
    return 2
