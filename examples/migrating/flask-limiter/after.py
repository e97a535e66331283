"""A site with a login and a contact form."""

from flask import Blueprint, Flask, jsonify, request

from headgate.web.flask import RateLimits, exempt, limited

limits = RateLimits(default="200/day; 50/hour")
auth = Blueprint("auth", __name__, url_prefix="/auth")


@auth.route("/login", methods=["GET", "POST"])
@limited("5/minute", match={"method": "POST"})
def login():
    if request.method == "GET":
        return "a form"
    return ("welcome", 200) if request.form.get("password") == "right" else ("wrong", 401)


def create_app():
    app = Flask(__name__)
    limits.init_app(app)
    app.register_blueprint(auth)

    @app.get("/")
    def index():
        return "a page"

    @app.post("/contact")
    @limited("3/hour")
    def contact():
        return "thank you"

    @app.get("/health")
    @exempt
    def health():
        return "well"

    @app.errorhandler(429)
    def too_many(error):
        return jsonify(error="too many requests"), 429

    return app
