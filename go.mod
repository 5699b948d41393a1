module github.com/handfast-mq/handfast

go 1.26
