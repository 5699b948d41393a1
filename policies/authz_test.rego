package handfast.authz_test

import data.handfast.authz

user(id) := {"id": id, "name": "u", "roles": [], "labels": {}, "disabled": false}

root := object.union(user(1), {"roles": ["admin"]})

topic(rule) := {"id": 10, "name": "t", "owner": 2, "labels": {}, "rule": {"id": 1, "name": rule, "own": false}}

own_topic(says) := {"id": 10, "name": "t", "owner": 2, "labels": {}, "rule": {"id": 100, "name": "mine", "own": true, "says": says}}

sub := {"id": 20, "topic": 10, "consumer": 3, "state": "active"}

request(id, action, more) := object.union({"principal": user(id), "action": action, "as": 0, "grant": false}, more)

allows(r) if {
	d := authz.decision with input as r
	d.allow == true
	count(d.reasons) > 0
}

denies(r) if {
	d := authz.decision with input as r
	d.allow == false
	count(d.reasons) > 0
}

test_no_input_is_refused if denies({})

test_unauthenticated_is_refused if {
	denies({"action": "create_topic", "as": 0})
	denies({"principal": {"id": 0, "roles": ["admin"]}, "action": "read_topic", "as": 0, "topic": topic("open")})
}

test_unknown_action_is_refused if denies(request(2, "fly", {"topic": topic("open")}))

test_disabled_is_refused if {
	denies({"principal": object.union(root, {"disabled": true}), "action": "read_cluster", "as": 0})
	denies({"principal": object.union(user(2), {"disabled": true}), "action": "publish", "as": 0, "topic": topic("open")})
}

test_admin_does_everything_as_anybody if {
	every action in {"create_user", "read_cluster", "read_user", "update_user", "delete_topic", "publish", "consume"} {
		allows({"principal": root, "action": action, "as": 7, "topic": topic("closed"), "subscription": sub, "user": user(3)})
	}
}

test_admin_role_has_to_be_exact if {
	denies({"principal": object.union(user(1), {"roles": ["administrator", "operator"]}), "action": "read_cluster", "as": 0})
}

test_admin_does_not_speak_for_an_owner if {
	denies({"principal": root, "action": "auto_approve", "as": 3, "topic": topic("approval"), "subscription": sub})
}

test_nobody_else_acts_as_somebody if {
	denies(request(2, "publish", {"as": 3, "topic": topic("open")}))
	allows(request(2, "publish", {"as": 2, "topic": topic("open")}))
}

test_everybody_creates if {
	every action in {"create_topic", "create_rule", "create_pattern"} {
		allows(request(5, action, {}))
	}
	allows(request(2, "create_topic", {"topic": topic("open")}))
	denies(request(5, "create_topic", {"topic": topic("open")}))
}

test_only_admins_create_users if {
	denies(request(2, "create_user", {}))
	denies(request(2, "read_cluster", {}))
	allows({"principal": root, "action": "create_user", "as": 0})
}

test_publish if {
	allows(request(5, "publish", {"topic": topic("open")}))
	every rule in {"approval", "closed"} {
		denies(request(5, "publish", {"topic": topic(rule)}))
		allows(request(5, "publish", {"topic": topic(rule), "grant": true}))
		allows(request(2, "publish", {"topic": topic(rule)}))
	}
	denies(request(5, "publish", {"grant": true}))
	denies(request(5, "publish", {"topic": topic("unheard-of")}))
}

test_subscribe if {
	allows(request(5, "subscribe", {"topic": topic("open")}))
	allows(request(5, "subscribe", {"topic": topic("approval")}))
	denies(request(5, "subscribe", {"topic": topic("closed")}))
	denies(request(5, "subscribe", {"topic": topic("closed"), "grant": true}))
	allows(request(2, "subscribe", {"topic": topic("closed")}))
}

test_auto_approve if {
	allows(request(3, "auto_approve", {"topic": topic("open"), "subscription": sub}))
	every rule in {"approval", "closed"} {
		denies(request(3, "auto_approve", {"topic": topic(rule), "subscription": sub}))
		denies(request(2, "auto_approve", {"topic": topic(rule), "subscription": sub}))
		allows(request(2, "auto_approve", {"topic": topic(rule), "subscription": object.union(sub, {"consumer": 2})}))
		allows(request(2, "auto_approve", {"topic": topic(rule)}))
		denies(request(3, "auto_approve", {"topic": topic(rule)}))
	}
}

test_own_rule if {
	every action in {"publish", "subscribe", "auto_approve", "read_topic"} {
		allows(request(5, action, {"topic": own_topic(true)}))
		denies(request(5, action, {"topic": own_topic(false)}))
		allows(request(2, action, {"topic": own_topic(false)}))
	}
	denies(request(5, "delete_topic", {"topic": own_topic(true)}))
}

test_own_rule_cannot_take_a_built_in_name if {
	denies(request(5, "publish", {"topic": object.union(own_topic(false), {"rule": {"id": 100, "name": "open", "own": true, "says": false}})}))
}

test_owner_actions if {
	every action in {"update_topic", "delete_topic", "approve_subscription", "reject_subscription", "grant_publish", "revoke_publish", "redrive"} {
		allows(request(2, action, {"topic": topic("open"), "subscription": sub}))
		denies(request(3, action, {"topic": topic("open"), "subscription": sub, "grant": true}))
	}
}

test_read_topic if {
	allows(request(5, "read_topic", {"topic": topic("open")}))
	allows(request(5, "read_topic", {"topic": topic("approval")}))
	denies(request(5, "read_topic", {"topic": topic("closed")}))
	allows(request(5, "read_topic", {"topic": topic("closed"), "grant": true}))
	allows(request(2, "read_topic", {"topic": topic("closed")}))
	allows(request(3, "read_topic", {"topic": topic("closed"), "subscription": sub}))
	denies(request(3, "read_topic", {"topic": topic("closed"), "subscription": object.union(sub, {"state": "ended"})}))
	denies(request(3, "read_topic", {"topic": topic("closed"), "subscription": object.union(sub, {"topic": 11})}))
}

test_message_status if {
	allows(request(2, "message_status", {"topic": topic("open")}))
	allows(request(5, "message_status", {"topic": topic("open"), "grant": true}))
	allows(request(3, "message_status", {"topic": topic("open"), "subscription": sub}))
	denies(request(5, "message_status", {"topic": topic("open"), "subscription": sub}))
}

test_subscriptions if {
	allows(request(3, "consume", {"topic": topic("closed"), "subscription": sub}))
	denies(request(2, "consume", {"topic": topic("closed"), "subscription": sub}))
	every action in {"unsubscribe", "read_subscription"} {
		allows(request(3, action, {"topic": topic("closed"), "subscription": sub}))
		allows(request(2, action, {"topic": topic("closed"), "subscription": sub}))
		denies(request(5, action, {"topic": topic("open"), "subscription": sub}))
	}
}

test_users if {
	every action in {"read_user", "update_user"} {
		allows(request(5, action, {"user": user(5)}))
		denies(request(5, action, {"user": user(6)}))
		denies(request(5, action, {}))
	}
}

test_functions if {
	f := {"function": {"name": "f", "owner": 2, "invokers": [3]}}
	allows(request(2, "manage_function", f))
	denies(request(3, "manage_function", f))
	allows(request(3, "manage_function", {"function": {"name": "g", "owner": 0, "invokers": []}}))
	allows(request(2, "invoke_function", f))
	allows(request(3, "invoke_function", f))
	denies(request(5, "invoke_function", f))
	denies(request(5, "invoke_function", {"function": {"name": "g", "owner": 0, "invokers": []}}))
}

test_refusals_have_words if {
	d := authz.decision with input as request(5, "publish", {"topic": topic("closed")})
	d.reasons == ["publishing to this topic needs a grant from its owner"]
}
