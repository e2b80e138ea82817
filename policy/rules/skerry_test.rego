package skerry.guard

node_in(region) := {"name": "n1", "region": region, "site": "", "labels": {}}

a_task := {
	"tenant": "default",
	"kind": "task",
	"privileged": false,
	"resources": {"memory_bytes": 1000},
	"data": {"labels": [], "home_region": null, "size_bytes": 0},
}

with_data(labels, home) := object.union(a_task, {"data": {"labels": labels, "home_region": home}})

rules_against(task, region) := found if {
	found := {one.rule | some one in deny} with input as {"task": task, "node": node_in(region)}
}

test_a_plain_task_is_allowed if {
	rules_against(a_task, "eu") == set()
}

test_personal_data_stay_at_home if {
	rules_against(with_data(["pii"], "eu"), "eu") == set()
	rules_against(with_data(["pii"], "eu"), "us") == {"residency"}
}

test_a_label_counts_in_any_case if {
	rules_against(with_data(["PII"], "eu"), "us") == {"residency"}
}

test_personal_data_without_a_home_run_nowhere if {
	rules_against(with_data(["pii"], null), "eu") == {"residency"}
}

test_other_labels_may_travel if {
	rules_against(with_data(["public"], "eu"), "us") == set()
}

greedy := object.union(a_task, {"resources": {"memory_bytes": 3000}})

test_memory_is_capped_by_tenant_and_by_kind if {
	rules_against(greedy, "eu") == {"memory-cap"} with data.limits as {"default": {"memory_bytes": 2000}}
	rules_against(greedy, "eu") == set() with data.limits as {
		"default": {"memory_bytes": 2000},
		"tenants": {"default": {"memory_bytes": 4000}},
	}
	rules_against(greedy, "eu") == {"memory-cap"} with data.limits as {
		"default": {"memory_bytes": 4000},
		"kinds": {"task": {"memory_bytes": 2000}},
	}
}

test_no_limit_at_all_denies if {
	rules_against(a_task, "eu") == {"memory-cap"} with data.limits as {}
}

test_privileged_commands_need_a_named_tenant if {
	asking := object.union(a_task, {"privileged": true})
	rules_against(asking, "eu") == {"privileged"}
	rules_against(asking, "eu") == set() with data.privileged_tenants as ["default"]
}

test_data_that_are_not_sound_deny if {
	rules_against(a_task, "eu") == {"residency"} with data.resident_labels as "pii"
	rules_against(a_task, "eu") == {"memory-cap"} with data.limits as {
		"default": {"memory_bytes": 4000},
		"tenants": {"default": {"memory_bytes": "4 GiB"}},
	}
}
