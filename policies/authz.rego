# Who may do what. The decision allows when there is at least one ground and no obstacle.
package handfast.authz

decision := {"allow": false, "reasons": sort(obstacles)} if {
	count(obstacles) > 0
}

decision := {"allow": true, "reasons": sort(grounds), "limits": limits} if {
	count(obstacles) == 0
	count(grounds) > 0
}

decision := {"allow": false, "reasons": [refusal]} if {
	count(obstacles) == 0
	count(grounds) == 0
}

# How much of what is allowed is allowed. Another file of this package can say more: content_bytes and rate, of publishing.

default limits := {}

# Obstacles outweigh every ground.

obstacles contains "the user is disabled" if input.principal.disabled

obstacles contains "nobody is authenticated" if not authenticated

authenticated if input.principal.id > 0

obstacles contains "only an admin acts as somebody else" if {
	input.as != 0
	input.as != input.principal.id
	not admin
}

# Everybody who is authenticated.

everybody := {"create_topic", "create_rule", "create_pattern"}

grounds contains "everybody may make their own" if {
	input.action in everybody
	not of_somebody_else
}

of_somebody_else if {
	input.action == "create_topic"
	input.topic.owner != acting
}

# Admins do everything. That a rule speaks for a topic's owner is a property of the rule, whoever asks.

admin if "admin" in input.principal.roles

grounds contains "admins may do everything" if {
	admin
	input.action != "auto_approve"
}

# Topics.

owner_actions := {
	"update_topic", "delete_topic", "read_topic", "publish", "subscribe", "auto_approve", "approve_subscription",
	"reject_subscription", "grant_publish", "revoke_publish", "redrive", "message_status", "read_subscription",
	"unsubscribe",
}

grounds contains "the topic's owner" if {
	input.action in owner_actions
	owns_topic
}

owns_topic if {
	input.action != "auto_approve"
	input.topic.owner == acting
}

# The owner's approval is only implied where the owner is the consumer.
owns_topic if {
	input.action == "auto_approve"
	input.topic.owner == consumer
}

grant_actions := {"publish", "read_topic", "message_status"}

grounds contains "a grant to publish" if {
	input.action in grant_actions
	input.topic
	input.grant
}

rule_allows := {
	"open": {"publish", "subscribe", "auto_approve", "read_topic"},
	"approval": {"subscribe", "read_topic"},
	"closed": set(),
}

grounds contains sprintf("the rule %s", [input.topic.rule.name]) if {
	not input.topic.rule.own
	input.action in rule_allows[input.topic.rule.name]
}

# A rule that a user wrote was asked before; it answers for nothing but these, and whoever may publish or subscribe by it
# may see the topic.
own_rule_actions := {"publish", "subscribe", "auto_approve", "read_topic"}

grounds contains "the topic's own rule" if {
	input.topic.rule.own
	input.action in own_rule_actions
	input.topic.rule.says == true
}

# Subscriptions.

subscriber_actions := {"unsubscribe", "consume", "read_subscription"}

grounds contains "the subscription's consumer" if {
	input.action in subscriber_actions
	input.subscription.consumer == acting
}

grounds contains "a subscriber of the topic" if {
	input.action in {"read_topic", "message_status"}
	input.subscription.consumer == acting
	input.subscription.topic == input.topic.id
	not input.subscription.state in {"rejected", "ended"}
}

# Users, functions.

grounds contains "oneself" if {
	input.action in {"read_user", "update_user"}
	input.user.id == input.principal.id
}

grounds contains "the function's owner" if {
	input.action in {"manage_function", "invoke_function"}
	input.function.owner == acting
}

grounds contains "everybody may make their own" if {
	input.action == "manage_function"
	input.function.owner == 0
}

grounds contains "the function's owner lets this user invoke it" if {
	input.action == "invoke_function"
	acting in input.function.invokers
}

# Who acts: the one that the request names, or the caller.

acting := input.as if input.as != 0

acting := input.principal.id if input.as == 0

consumer := input.subscription.consumer

consumer := acting if not input.subscription

# Words for a refusal.

default refusal := "only an admin may do this"

refusal := refusals[input.action]

refusals := {
	"create_topic": "a topic belongs to the one who makes it",
	"publish": "publishing to this topic needs a grant from its owner",
	"subscribe": "the topic's rule does not let this user subscribe",
	"auto_approve": "the topic's owner must approve",
	"read_topic": "the topic's rule does not let this user see it",
	"update_topic": "only the topic's owner may do this",
	"delete_topic": "only the topic's owner may do this",
	"approve_subscription": "only the topic's owner may do this",
	"reject_subscription": "only the topic's owner may do this",
	"grant_publish": "only the topic's owner may do this",
	"revoke_publish": "only the topic's owner may do this",
	"redrive": "only the topic's owner may do this",
	"message_status": "only the topic's owner, its publishers and its subscribers may do this",
	"unsubscribe": "only the consumer or the topic's owner may do this",
	"consume": "only the subscription's consumer may do this",
	"read_subscription": "only the consumer or the topic's owner may do this",
	"read_user": "users see and change only themselves",
	"update_user": "users see and change only themselves",
	"manage_function": "only the function's owner may do this",
	"invoke_function": "the function's owner does not let this user invoke it",
}
