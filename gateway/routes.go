package gateway

import "github.com/handfast-mq/handfast/schema"

func (g *Gateway) routes() {
	a := g.app
	a.Get("/healthz", g.healthz)
	a.Get("/readyz", g.readyz)
	a.Get("/metrics", g.serveMetrics)
	a.Get("/openapi.yaml", g.openapi)

	a.Post("/publish_message", g.publishMessage)
	a.Post("/publish_messages", g.publishMessages)
	a.Get("/message_status", query(g, g.messageStatus, "message_id"))
	a.Add("GET", "/message", g.pullMessages) // and no HEAD: it hands messages out
	a.Post("/ack", body(g, g.ack))
	a.Post("/nack", body(g, g.nack))
	a.Post("/extend", body(g, g.extend))

	a.Post("/create_topic", body(g, g.createTopic))
	a.Post("/update_topic", body(g, g.updateTopic))
	a.Post("/delete_topic", body(g, g.deleteTopic))
	a.Get("/topic", query(g, g.getTopic, "topic_id", "topic_name", "publisher_id"))
	a.Get("/topics", query(g, g.listTopics, "publisher_id", "after", "limit"))
	a.Post("/grant_publish", body(g, g.grantPublish))
	a.Post("/revoke_publish", body(g, g.revokePublish))
	a.Get("/grants", query(g, g.listGrants, "topic_id"))

	a.Post("/subscribe", body(g, g.subscribe))
	a.Post("/unsubscribe", body(g, g.unsubscribe))
	a.Post("/update_subscription", body(g, g.updateSubscription))
	a.Post("/approve_subscription", g.onSubscription(schema.ActionApprove, g.approve))
	a.Post("/reject_subscription", g.onSubscription(schema.ActionReject, g.reject))
	a.Post("/verify_subscription", g.onSubscription(schema.ActionConsume, g.verify))
	a.Add("GET", "/confirm_subscription", g.confirmSubscription) // and no HEAD: it changes something
	a.Post("/confirm_subscription", g.confirmSubscription)
	a.Post("/pause_subscription", g.onSubscription(schema.ActionConsume, g.pause))
	a.Post("/resume_subscription", g.onSubscription(schema.ActionConsume, g.resume))
	a.Post("/rotate_secret", body(g, g.rotateSecret))
	a.Post("/replay", body(g, g.replay))
	a.Post("/redrive", body(g, g.redrive))
	a.Get("/subscription", query(g, g.getSubscription, "subscription_id", "consumer_id", "topic_id"))
	a.Get("/subscriptions", query(g, g.listSubscriptions, "topic_id", "consumer_id", "state", "after", "limit"))
	a.Get("/deliveries", query(g, g.listDeliveries, "message_id", "subscription_id", "limit"))

	a.Post("/create_user", body(g, g.createUser))
	a.Post("/update_user", body(g, g.updateUser))
	a.Post("/rotate_token", body(g, g.rotateToken))
	a.Post("/revoke_token", body(g, g.revokeToken))
	a.Get("/user", query(g, g.getUser, "user_id"))
	a.Get("/users", query(g, g.listUsers, "after", "limit"))

	a.Get("/cluster", query(g, g.showCluster))

	a.Post("/create_access_key", body(g, g.createAccessKey))

	a.Post(deployPath, g.deployFunction)
	a.Post("/update_function", body(g, g.updateFunction))
	a.Post("/rollback_function", body(g, g.rollbackFunction))
	a.Post("/delete_function", body(g, g.deleteFunction))
	a.Get("/function", query(g, g.getFunction, "function_name"))
	a.Get("/functions", query(g, g.listFunctions, "after", "limit"))
	a.Get("/function_logs", g.functionLogs)
	a.Post(invokePath, g.invoke)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		a.Add(method, functionURLPath, g.callFunctionURL)
	}

	a.Get("/rules", query(g, g.listRules))
	a.Post("/create_rule", body(g, g.createRule))
	a.Get("/patterns", query(g, g.listPatterns))
	a.Post("/create_pattern", body(g, g.createPattern))
}
