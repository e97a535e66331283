"""Flask: limits at endpoints and blueprints, and a policy in front of the app.

limits = RateLimits(default="100/minute")    # limits.init_app(app); or RateLimits(app), and app.config["HEADGATE_..."]

@app.post("/login")
@limited("5/minute by sliding-log", key=lambda: request.form.get("name"), count={"when": {"status": 401}})
def login(): ...

Decorators only mark views. The extension decides before the view is called: by the policy, then in one decision by the
limits of the endpoint, which are the view's own and its blueprints', or else the default.
"""

from headgate.wording import requiring

with requiring("headgate.web.flask", "flask"):
    from headgate.web.flask.extension import RateLimits
    from headgate.web.flask.requests import RateLimitExceeded
    from headgate.web.flask.views import exempt, limited


__all__ = ["RateLimitExceeded", "RateLimits", "exempt", "limited"]
