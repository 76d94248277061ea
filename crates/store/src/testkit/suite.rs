//! The list of behaviours, and the tests made of it.

/// Hands the list of behaviours to a macro: the given tokens, then each file with its functions.
#[doc(hidden)]
#[macro_export]
macro_rules! testkit_behaviours {
    ([$($then:tt)*] $($given:tt)*) => {
        $($then)* ! { $($given)*
            writing:
                live_writer_lifecycle_writes_and_closes
                header_fields_come_back
                items_are_kept_by_history_mode
                retained_items_are_byte_identical
                timestamps_strictly_increase
                ordinals_belong_to_paginated_threads
                shutdown_does_not_materialize_an_empty_thread
                persist_makes_an_empty_thread
                appended_items_are_read_at_once
                create_thread_rejects_missing_cwd
                resume_thread_rejects_missing_cwd
                duplicate_live_writers_are_rejected
                writers_exclude_each_other_over_stores
                discard_thread_drops_unmaterialized_live_writer
                create_thread_rejects_an_existing_thread
                resume_thread_reopens_live_writer_and_appends
                resume_of_an_archived_thread_is_asked_for
                threads_are_written_side_by_side
            ;
            reading:
                read_thread_returns_active_summary
                times_of_a_thread_are_those_of_its_records
                read_thread_includes_history_where_asked
                archived_threads_are_read_when_requested
                read_thread_fails_without_rollout
                live_rollout_path_comes_before_the_file
                load_history_uses_live_writer_rollout_path
                model_context_begins_with_the_last_checkpoint
                model_context_reaches_back_to_a_turn_with_its_settings
                model_context_is_everything_without_a_checkpoint
                model_context_is_everything_where_turns_were_taken_back
                unknown_records_are_kept_and_read
            ;
            metadata:
                raw_append_items_does_not_update_stored_metadata
                names_are_set_replaced_and_cleared
                a_rename_moves_no_time_and_no_record
                git_facts_change_one_by_one
                decisions_of_several_kinds_keep_each_other
                a_decision_materializes_a_live_thread
                observed_patches_are_stored_literally
                observed_metadata_is_a_hint
                metadata_of_an_unknown_thread_is_refused
                archived_threads_stay_archived_when_changed
                metadata_leaves_the_history_alone
            ;
            listing:
                list_threads_orders_and_pages
                cursors_include_the_thread_id_as_tie_breaker
                cursors_carry_their_sort_and_filters
                list_threads_rejects_invalid_cursor
                threads_that_move_between_pages_are_given_once
                list_threads_selects_active_or_archived
                list_threads_filters_by_facts
                list_threads_searches_names_and_previews
                list_threads_uses_goal_objective_as_preview
                list_rows_are_as_complete_as_reads
                list_threads_by_relation_pages_the_spawn_graph
            ;
            searching:
                search_threads_finds_what_was_said
                search_looks_in_what_was_said_only
                search_threads_selects_active_or_archived
                search_finds_inherited_text_where_it_was_said
                searches_need_a_term_and_a_page
                occurrences_come_in_order_and_once
                occurrences_in_turns_taken_back_have_no_number
            ;
            paging:
                list_turns_pages_in_both_directions
                list_items_pages_in_both_directions
                turns_tell_how_they_stand
                turns_taken_back_are_left_out
                turns_appended_between_pages_come_at_the_end
                pages_of_turns_refuse_what_they_cannot_answer
                a_thread_without_turns_has_an_empty_page
            ;
            graph:
                spawn_edges_list_direct_children_with_status_filters
                spawn_edge_status_is_updated
                spawn_edges_have_one_parent_per_child
                spawn_edges_list_descendants_breadth_first
                spawn_edge_cycles_end
            ;
            forking:
                a_whole_fork_has_every_record
                forks_do_not_see_what_comes_later
                forks_end_at_turns
                forks_of_forks_end_at_turns
                forks_refuse_turns_that_are_none
                a_fork_ends_the_turn_that_still_runs
                a_fork_materializes_its_source
                forks_follow_the_rules_of_new_threads
                forks_take_the_capability_roots_of_the_first_header
                subagent_forks_take_the_context_of_the_last_turns
                inherited_context_is_not_visible_history
                forks_end_at_unmarked_turns
            ;
            reverting:
                reverts_end_before_turns
                reverts_take_the_header_over
                reverts_refuse_turns_that_are_none
                a_thread_is_reverted_again
                reverts_leave_forks_alone
                forks_are_reverted_into_what_they_took_over
                reverts_of_threads_that_are_written
                a_turn_that_was_cut_off_is_reverted
                reverts_leave_what_is_kept_beside_the_history
                searches_know_what_was_reverted
                reverts_take_checkpoints_back
                reverts_leave_inherited_context
                reverts_end_at_unmarked_turns
                rollouts_of_a_thread_are_no_threads
            ;
            live:
                live_thread_observes_appended_items_into_metadata
                observed_times_are_those_of_the_records
                response_item_user_messages_do_not_set_title
                live_thread_does_not_derive_metadata_from_inherited_items
                live_thread_output_advances_updated_at_but_not_recency_at
                metadata_irrelevant_items_coalesce_updated_at_touches
                live_thread_shutdown_does_not_materialize_empty_thread_metadata
                live_thread_persist_makes_thread_and_metadata
                live_thread_shutdown_materializes_before_metadata_is_read
                memory_mode_update_before_rollout_materializes_keeps_history_mode
                live_thread_decisions_stay_while_more_is_observed
                live_thread_resume_keeps_what_is_known
                live_thread_resume_loads_history_before_observing
                live_thread_resume_from_explicit_external_rollout_path
                live_thread_resume_that_fails_leaves_no_writer
                later_user_messages_do_not_replace_the_first
                goal_update_sets_preview_without_overriding_existing
                thread_settings_applied_updates_live_metadata
                an_init_guard_discards_on_drop
                live_thread_discard_closes_the_writer
            ;
        }
    };
}

/// The same of what moves and removes threads.
#[doc(hidden)]
#[macro_export]
macro_rules! testkit_lifecycle_behaviours {
    ([$($then:tt)*] $($given:tt)*) => {
        $($then)* ! { $($given)*
            lifecycle:
                archive_and_unarchive_move_a_thread
                archive_and_unarchive_refuse_threads_that_are_elsewhere
                archive_and_unarchive_refuse_threads_that_are_written
                delete_removes_all_of_a_thread
                delete_thread_reports_missing_thread
                delete_drops_the_own_writer
                delete_refuses_what_forks_need
                reverted_threads_are_moved_whole
                children_outlive_their_parents
                two_stores_see_each_other_s_moves
                several_threads_are_changed_one_by_one
            ;
        }
    };
}

/// Makes one `#[test]` of every behaviour in both history modes, in modules `legacy` and `paginated`. The argument is
/// an expression that makes a new [`StoreHarness`](crate::testkit::StoreHarness); it is evaluated in each test, with what
/// stands in the calling module in scope.
#[macro_export]
macro_rules! testkit_suite {
    ($harness:expr) => {
        mod legacy {
            use super::*;
            $crate::testkit_behaviours! { [$crate::testkit_tests] Legacy, $harness; }
        }
        mod paginated {
            use super::*;
            $crate::testkit_behaviours! { [$crate::testkit_tests] Paginated, $harness; }
        }
    };
}

/// As [`suite!`](crate::testkit::suite!), of what moves and removes threads.
#[macro_export]
macro_rules! testkit_lifecycle_suite {
    ($harness:expr) => {
        mod legacy_lifecycle {
            use super::*;
            $crate::testkit_lifecycle_behaviours! { [$crate::testkit_tests] Legacy, $harness; }
        }
        mod paginated_lifecycle {
            use super::*;
            $crate::testkit_lifecycle_behaviours! { [$crate::testkit_tests] Paginated, $harness; }
        }
    };
}

/// One `#[test]` of each behaviour.
#[doc(hidden)]
#[macro_export]
macro_rules! testkit_tests {
    ($mode:ident, $harness:expr; $($area:ident: $($name:ident)*;)*) => { $($(
        #[test]
        fn $name() {
            let harness = $harness;
            $crate::testkit::run($crate::testkit::$area::$name(&harness, $crate::testkit::HistoryMode::$mode));
        }
    )*)* };
}

#[cfg(test)]
mod tests {
    macro_rules! names {
        ($($area:ident: $($name:ident)*;)*) => {
            &[$((stringify!($area), &[$(stringify!($name)),*] as &[&str])),*]
        };
    }

    /// A behaviour that is not in the list would never run.
    #[test]
    fn every_behaviour_is_in_the_list() {
        let listed: &[(&str, &[&str])] = crate::testkit_behaviours! { [names] };
        let moving: &[(&str, &[&str])] = crate::testkit_lifecycle_behaviours! { [names] };
        let sources = [
            ("writing", include_str!("writing.rs")),
            ("reading", include_str!("reading.rs")),
            ("metadata", include_str!("metadata.rs")),
            ("listing", include_str!("listing.rs")),
            ("searching", include_str!("searching.rs")),
            ("paging", include_str!("paging.rs")),
            ("graph", include_str!("graph.rs")),
            ("forking", include_str!("forking.rs")),
            ("reverting", include_str!("reverting.rs")),
            ("live", include_str!("live.rs")),
            ("lifecycle", include_str!("lifecycle.rs")),
        ];
        let behaviours = sources.map(|(area, text)| {
            let names = text.split("\npub async fn ").skip(1).filter_map(|f| f.split('(').next());
            (area, names.collect::<Vec<_>>())
        });
        let listed: Vec<_> = listed.iter().chain(moving).map(|(area, names)| (*area, names.to_vec())).collect();
        assert_eq!(listed, behaviours);
    }
}
