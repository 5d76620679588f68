o.state = 'queued' AND NOT o.held AND NOT o.cancel_requested AND o.not_before <= now() AND /* expires at */ > now()
