"""A shop with a contact form and a small API."""

from flask import Blueprint, Flask, jsonify

from headgate.web.flask import RateLimits, limited

limits = RateLimits()
api = limited("20/hour", name="api")(Blueprint("api", __name__, url_prefix="/api"))


@api.get("/items/<int:item>")
def show(item):
    return {"item": item}


@api.get("/search")
def search():
    return {"found": []}


def create_app():
    app = Flask(__name__)
    app.config["HEADGATE_STORE"] = "shared:///dev/shm/flask-shop"
    app.config["HEADGATE_DEFAULT"] = "100/minute"
    limits.init_app(app)
    app.register_blueprint(api)

    @app.post("/contact")
    @limited("3/hour")
    def contact():
        return "thank you", 202

    @app.errorhandler(429)
    def too_many(refusal):
        return jsonify(error="too many requests", retry_after=refusal.retry_after), 429

    return app
