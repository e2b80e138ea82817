# The hard rules that ship with Skerry. Each word of `deny` rules a device out for a task; docs/reference/rules.md
# says what may stand behind `input.`. Limits and names are in data.json.
package skerry.guard

# METADATA
# title: Personal data stay in their home region
# custom:
#   rule: residency
#   enforcement: deny
deny contains {"rule": "residency", "msg": msg, "details": {"home": home}} if {
	is_resident
	home := input.task.data.home_region
	home != input.node.region
	msg := sprintf("data labelled %s may only be processed in %v, this node is in %s", [
		concat(", ", resident_labels),
		object.get({null: "a home region (none is given)"}, home, home),
		input.node.region,
	])
}

deny contains {"rule": "residency", "msg": "data.resident_labels is not a list", "details": {}} if {
	not is_array(data.resident_labels)
}

resident_labels contains label if {
	some label in input.task.data.labels
	lower(label) in {lower(one) | some one in data.resident_labels}
}

is_resident if count(resident_labels) > 0

# METADATA
# title: No task asks for more memory than its tenant and its kind may have
# custom:
#   rule: memory-cap
#   enforcement: deny
deny contains {"rule": "memory-cap", "msg": msg, "details": {"limit_bytes": limit}} if {
	some whose, limit in memory_limits
	input.task.resources.memory_bytes > limit
	msg := sprintf("asks for %d bytes of memory, %s may have %d", [input.task.resources.memory_bytes, whose, limit])
}

deny contains {"rule": "memory-cap", "msg": "data.limits.default.memory_bytes is not set", "details": {}} if {
	not is_number(data.limits["default"].memory_bytes)
}

# A text is above every number in Rego: as a limit it would allow everything.
deny contains {"rule": "memory-cap", "msg": msg, "details": {}} if {
	some whose, limit in memory_limits
	not is_number(limit)
	msg := sprintf("the memory limit of %s is not a number of bytes", [whose])
}

memory_limits[sprintf("tenant %s", [input.task.tenant])] := limit if {
	limit := object.get(data.limits, ["tenants", input.task.tenant, "memory_bytes"], data.limits["default"].memory_bytes)
}

memory_limits[sprintf("kind %s", [input.task.kind])] := limit if {
	limit := data.limits.kinds[input.task.kind].memory_bytes
}

# METADATA
# title: Only named tenants run commands with the agent's own rights
# custom:
#   rule: privileged
#   enforcement: deny
deny contains {"rule": "privileged", "msg": msg, "details": {}} if {
	input.task.privileged
	not input.task.tenant in data.privileged_tenants
	msg := sprintf("tenant %s may not run privileged commands", [input.task.tenant])
}
