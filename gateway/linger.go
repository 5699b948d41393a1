package gateway

import (
	"io"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

const (
	// lingerBytesMax and lingerTimeout bound what is still read of a request that was answered before it was read whole.
	lingerBytesMax = 64 << 20
	lingerTimeout  = 5 * time.Second
)

// lingerListener gives connections that can linger. Closing one while the client still sends would reset it, and the client would
// lose the answer that says why.
type lingerListener struct{ net.Listener }

func (l lingerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, is := c.(*net.TCPConn); is {
		return &lingerConn{TCPConn: tcp}, err
	}
	return c, err
}

// lingerConn belongs to the goroutine that serves it.
type lingerConn struct {
	*net.TCPConn
	unread bool // an answer went out before the request was read whole
}

// Close ends the answer, takes and forgets what the client was still sending, within bounds, and closes.
func (c *lingerConn) Close() error {
	if c.unread && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		io.CopyN(io.Discard, c.TCPConn, lingerBytesMax) // how it ends makes no difference
	}
	return c.TCPConn.Close()
}

// failUnread answers what could not be read as a request. Where the next one begins nobody knows: the connection ends.
func (g *Gateway) failUnread(c *fiber.Ctx, err error) error {
	c.Set(fiber.HeaderConnection, "close")
	failed := g.fail(c, err)
	status := c.Response().StatusCode()
	if conn, is := c.Context().Conn().(*lingerConn); is && status != fiber.StatusRequestTimeout {
		conn.unread = true
	}
	g.metrics.count("none", status)
	g.cfg.Logger.Info("request not read", "address", c.Context().RemoteIP(), "status", status, "err", err)
	return failed
}

// expect answers a client that asks before it sends its body, so that one that is too large stays where it is.
func (g *Gateway) expect(ctx *fasthttp.RequestCtx) int {
	if ctx.Request.Header.ContentLength() <= g.bodyBytesMax(&ctx.Request.Header) {
		return fasthttp.StatusContinue
	}
	c := g.app.AcquireCtx(ctx)
	defer g.app.ReleaseCtx(c)
	if err := g.failUnread(c, fiber.ErrRequestEntityTooLarge); err != nil {
		return fasthttp.StatusExpectationFailed
	}
	return ctx.Response.StatusCode()
}
